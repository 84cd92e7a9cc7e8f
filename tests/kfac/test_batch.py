"""Losses that are functions of the outputs, and curvature on a part of the batch: against closures and dense truth."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from geonpg.kfac import Categorical, Constant, FixedGaussian, FreeLogStd, Gaussian, NaturalGradient, TrustRegion
from geonpg.kfac.metric import Metric
from geonpg.kfac.network import Call

RULES = ("ng", "mid", "geo", "geof")
SOLVERS = ("kfac", "pcg", "cg", "dense")


def chain(seed: int = 0, outputs: int = 2) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, outputs)).double()


def problem(cases: int = 40) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    draw = torch.Generator().manual_seed(1)
    x, t = (torch.randn(cases, n, dtype=torch.float64, generator=draw) for n in (3, 2))
    return x, lambda z: 0.5 * (z - t).square().mean()


def after(step: Callable[[NaturalGradient, nn.Module], object], steps: int = 3, **settings: object) -> Tensor:
    model = chain()
    optimizer = NaturalGradient(model, FixedGaussian(), **settings)
    for _ in range(steps):
        step(optimizer, model)
    return optimizer.geometry.network.layout.read()


def by_closure(optimizer: NaturalGradient, model: nn.Module) -> None:
    x, loss = problem()

    def closure() -> Tensor:
        optimizer.zero_grad()
        found = loss(model(x))
        found.backward()
        return found

    optimizer.step(closure)


def by_outputs(optimizer: NaturalGradient, model: nn.Module) -> None:
    optimizer.step_outputs(*problem())


def by_known_outputs(optimizer: NaturalGradient, model: nn.Module) -> None:
    x, loss = problem()
    known = optimizer.forward(x)
    assert known is not None
    assert torch.equal(optimizer.step_outputs(x, loss, known), loss(known.at.z))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("rule", RULES)
def test_a_loss_of_outputs_takes_the_closures_step(rule: str, solver: str) -> None:
    settings = {"rule": rule, "solver": solver, "control": TrustRegion(max_kl=0.05), "gradient_averaging": 0.5}
    truth = after(by_closure, **settings)
    assert torch.allclose(after(by_outputs, **settings), truth, rtol=1e-10, atol=1e-12)
    assert torch.allclose(after(by_known_outputs, **settings), truth, rtol=1e-10, atol=1e-12)


def test_a_forward_pass_of_other_inputs_is_not_used() -> None:
    x, loss = problem()

    def stale(optimizer: NaturalGradient, model: nn.Module) -> None:
        optimizer.step_outputs(x, loss, optimizer.forward(x + 1))

    assert torch.equal(after(stale), after(lambda optimizer, model: optimizer.step_outputs(x, loss)))


class Skip(nn.Module):
    """No chain: it takes the general path."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = chain(outputs=3), nn.Linear(3, 2).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + self.inner(x))


def test_any_module_takes_a_loss_of_outputs() -> None:
    x, _ = problem()
    ends = []
    for outputs in (True, False):
        torch.manual_seed(0)
        model = Skip()
        optimizer = NaturalGradient(model, FixedGaussian(), rule="geo", solver="pcg")
        assert optimizer.forward(x) is None
        by_outputs(optimizer, model) if outputs else by_closure(optimizer, model)
        ends.append(optimizer.geometry.network.layout.read())
    assert torch.equal(*ends)


def test_frozen_parameters_stay() -> None:
    model = chain()
    optimizer = NaturalGradient(model, FixedGaussian(), rule="geo", solver="kfac")
    model[0].weight.requires_grad_(False)
    before = model[0].weight.clone()
    by_outputs(optimizer, model)
    assert torch.equal(model[0].weight, before)
    assert not torch.equal(model[2].weight, chain()[2].weight)


@pytest.mark.parametrize("outputs", [True, False])
def test_curvature_is_that_of_every_so_many_th_case_and_the_gradient_of_all(outputs: bool) -> None:
    draw = torch.Generator().manual_seed(2)
    x, t = (torch.randn(600, n, dtype=torch.float64, generator=draw) for n in (3, 2))
    model = chain()
    optimizer = NaturalGradient(
        model, FixedGaussian(), rule="ng", solver="dense", damping=0.1, control=Constant(), curvature_every=2
    )
    network, start = optimizer.geometry.network, optimizer.geometry.network.layout.read()
    loss = 0.5 * (model(x) - t).square().sum(1).mean()
    gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])
    metric = Metric(network.linearise(start, Call((x[::2],))), FixedGaussian()).dense()
    truth = start - torch.linalg.solve(metric + 0.1 * torch.eye(len(metric), dtype=torch.float64), gradient)

    def closure() -> Tensor:
        optimizer.zero_grad()
        found = 0.5 * (model(x) - t).square().sum(1).mean()
        found.backward()
        return found

    if outputs:
        optimizer.step_outputs(x, lambda z: 0.5 * (z - t).square().sum(1).mean())
    else:
        optimizer.step(closure)
    assert torch.allclose(network.layout.read(), truth, atol=1e-12)


@pytest.mark.parametrize(("cases", "every"), [(255, 1), (511, 1), (512, 2), (1024, 4), (5000, 4)])
def test_curvature_takes_at_least_256_cases(cases: int, every: int) -> None:
    model = nn.Sequential(nn.Linear(3, 2), FreeLogStd(2))
    optimizer = NaturalGradient(model, Gaussian(), curvature_every=4)
    _, flow = optimizer._outputs_flow(torch.randn(cases, 3), lambda z: z.square().mean(), None)
    assert flow.at(flow.base).metric.linearisation.cases == -(-cases // every)


def test_kl_and_report_are_measured_on_the_part() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4))
    optimizer = NaturalGradient(
        model, Categorical(), rule="ng", solver="kfac", control=TrustRegion(max_kl=0.01), curvature_every=2
    )
    x, t = torch.randn(1000, 3), torch.randint(4, (1000,))
    before = model(x[::2]).detach()
    optimizer.step_outputs(x, lambda z: nn.functional.cross_entropy(z, t))
    kl = Categorical().kl(before, model(x[::2]).detach()).mean()
    assert optimizer.report.actual_kl == pytest.approx(float(kl), rel=1e-3)


def test_a_forward_pass_of_other_parameters_is_not_used() -> None:
    """What somebody writes into the module between the pass and the step stays, as before any other step."""
    x, loss = problem()
    ends = []
    for stale in (True, False):
        model = chain()
        optimizer = NaturalGradient(model, FixedGaussian(), rule="ng", solver="kfac")
        known = optimizer.forward(x)
        with torch.no_grad():
            model[2].bias.fill_(5.0)
        optimizer.step_outputs(x, loss, known if stale else None)
        ends.append(optimizer.geometry.network.layout.read())
    assert torch.equal(*ends)
