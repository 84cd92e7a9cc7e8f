"""What the optimiser sees of a closure, against what the module itself says: the true KL of a step."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from geonpg.kfac import FixedGaussian, NaturalGradient, TrustRegion

Loss = Callable[[nn.Module, Tensor], Tensor]


def squared(module: nn.Module, x: Tensor) -> Tensor:
    return 0.5 * (module(x) - 3 * x[:, :1]).square().mean()


def micro_batches(module: nn.Module, x: Tensor) -> Tensor:
    """The gradient of the whole batch, a part at a time; the first parts are small numbers."""
    losses = [squared(module, part) * len(part) / len(x) for part in x.split([7, 20, 13])]
    for loss in losses:
        loss.backward()
    return torch.stack(losses).sum().detach()


def looks_first(module: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        module(0.01 * x[:5])
    return whole(module, x)


def looks_afterwards(module: nn.Module, x: Tensor) -> Tensor:
    loss = whole(module, x)
    module(100 * x[:5])
    return loss


def whole(module: nn.Module, x: Tensor) -> Tensor:
    loss = squared(module, x)
    loss.backward()
    return loss


def by_torch_func(module: nn.Module, x: Tensor) -> Tensor:
    """Without a backward pass that reaches the module's output."""
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    gradients = grad(lambda p: 0.5 * (functional_call(module, p, (x,)) - 3 * x[:, :1]).square().mean())(parameters)
    for name, p in module.named_parameters():
        p.grad = gradients[name].clone()
    with torch.no_grad():
        return 0.5 * (functional_call(module, parameters, (x,)) - 3 * x[:, :1]).square().mean()


def step(closure: Loss, norm: bool = False, solver: str = "dense") -> tuple[NaturalGradient, Tensor, float]:
    """One step on a batch whose first cases are small; the optimiser, the parameters, and the step's true KL."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 6), nn.LayerNorm(6) if norm else nn.Tanh(), nn.Linear(6, 1)).double()
    x = torch.randn(40, 2, dtype=torch.float64) * torch.linspace(0.1, 3, 40, dtype=torch.float64).unsqueeze(1)
    control = TrustRegion(max_kl=0.05)
    optimizer = NaturalGradient(module, FixedGaussian(), rule="geo", solver=solver, control=control, seed=1)
    with torch.no_grad():
        before = module(x)

    def clean() -> Tensor:
        optimizer.zero_grad()
        return closure(module, x)

    optimizer.step(clean)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
    with torch.no_grad():
        kl = float(FixedGaussian().kl(before, module(x)).mean())
    return optimizer, optimizer.geometry.network.layout.read(), kl


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("closure", [micro_batches, looks_first, looks_afterwards, by_torch_func])
def test_E4_the_reported_kl_is_that_of_every_call_the_loss_depends_on(closure: Loss, norm: bool) -> None:
    optimizer, end, kl = step(closure, norm)
    assert optimizer.report.accepted
    assert optimizer.report.actual_kl == pytest.approx(kl, rel=1e-9)
    assert 0.01 < kl < 1.5 * 0.05
    assert torch.allclose(end, step(whole, norm)[1], atol=1e-10)


@pytest.mark.parametrize("closure", [looks_first, looks_afterwards])
def test_E4_a_call_beside_the_loss_changes_no_bit(closure: Loss) -> None:
    assert torch.equal(step(closure, solver="kfac")[1], step(whole, solver="kfac")[1])


def test_E4_a_module_that_calls_itself_is_called_once() -> None:
    class Folded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 1)

        def forward(self, x: Tensor, deeper: bool = True) -> Tensor:
            return self(0.5 * x, False) if deeper else self.layer(x)

    module, x = Folded(), torch.randn(9, 1)
    optimizer = NaturalGradient(module, FixedGaussian())

    def closure() -> Tensor:
        loss = module(x).square().mean()
        loss.backward()
        return loss

    _, flow = optimizer.flow(closure)
    (call,) = flow.batch.calls
    assert call.args[0] is x


def test_E4_outputs_of_several_sizes_are_refused() -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 3)

        def forward(self, x: Tensor, size: int) -> Tensor:
            return self.layer(x)[:, :size]

    module, x = Growing(), torch.randn(9, 1)
    optimizer = NaturalGradient(module, FixedGaussian())

    def closure() -> Tensor:
        loss = module(x, 2).square().mean() + module(x, 3).square().mean()
        loss.backward()
        return loss

    with pytest.raises(ValueError, match=r"calls the module with outputs of several sizes: \[2, 3\]"):
        optimizer.step(closure)


@pytest.mark.parametrize("rule", ["ng", "mid", "geo", "geof"])
@pytest.mark.parametrize("where", ["step", "closure"])
@pytest.mark.parametrize("norm", [False, True])
def test_E13_steps_under_autocast(norm: bool, where: str, rule: str) -> None:
    """The closure keeps its mixed precision; the geometry is measured in the parameters' own."""
    torch.manual_seed(0)
    body = nn.Linear(2, 6)
    module = nn.Sequential(*([nn.LayerNorm(6)] if norm else []), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1))
    x, dtypes = torch.randn(60, 2), set[torch.dtype]()
    optimizer = NaturalGradient(module, FixedGaussian(), rule=rule, control=TrustRegion(max_kl=0.02))

    def closure() -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=where == "closure" or torch.is_autocast_enabled("cpu")):
            z = module(body(x))
            dtypes.add(z.dtype)
            loss = 0.5 * (z - 2 * x[:, :1]).square().mean()
        loss.backward()
        return loss

    with torch.no_grad():
        before = module(body(x))
    losses = []
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16, enabled=where == "step"):
            losses.append(float(optimizer.step(closure)))
    assert dtypes == {torch.bfloat16}
    assert optimizer.rejected == 0
    assert losses[2] < losses[0]
    with torch.no_grad():
        moved = float(FixedGaussian().kl(before, module(body(x))).mean())
    assert 0.02 < moved < 0.2, "three steps in about one direction: nine times the KL of one, at most"


def test_E13_the_reported_kl_is_that_of_the_module_in_full_precision() -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1)), torch.randn(60, 2)
    optimizer = NaturalGradient(module, FixedGaussian(), control=TrustRegion(max_kl=0.02))
    with torch.no_grad():
        before = module(x)
    with torch.autocast("cpu", torch.bfloat16):
        optimizer.step(lambda: whole(module, x))
        assert torch.is_autocast_enabled("cpu")
    with torch.no_grad():
        assert optimizer.report.actual_kl == pytest.approx(float(FixedGaussian().kl(before, module(x)).mean()), 1e-4)
