"""NaturalGradient as a torch optimiser."""

import copy
import io
import math
import pickle
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from small_flows import Surrogate, policy
from torch import Tensor, nn

from geonpg.kfac import (
    RULES,
    SOLVERS,
    Bernoulli,
    Categorical,
    CgSolver,
    Constant,
    Controller,
    FactorSettings,
    FixedGaussian,
    FreeLogStd,
    Gaussian,
    LineSearch,
    NaturalGradient,
    TrustRegion,
)

FINITE = [name for name, rule in RULES.items() if rule.order < math.inf]


class Regression:
    """Fit a sine: a module, its data and the closure of a step."""

    def __init__(self, module: nn.Module | None = None, dtype: torch.dtype = torch.float64) -> None:
        torch.manual_seed(0)
        self.module = (module or nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1))).to(dtype)
        self.x = torch.linspace(-2, 2, 60, dtype=dtype).unsqueeze(1)
        self.t = torch.sin(2 * self.x)

    def __call__(self) -> Tensor:
        self.module.zero_grad()
        loss = 0.5 * (self.module(self.x) - self.t).square().sum(-1).mean()
        loss.backward()
        return loss


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("rule", FINITE)
def test_every_rule_with_every_solver_learns(rule: str, solver: str) -> None:
    task = Regression()
    optimizer = NaturalGradient(
        task.module, FixedGaussian(), rule=rule, solver=solver, control=TrustRegion(max_kl=0.05)
    )
    losses = [optimizer.step(task) for _ in range(25)]
    assert losses[-1] < 0.25 * losses[0]
    assert optimizer.rejected == 0
    assert optimizer.report.actual_kl <= 1.5 * 0.05


@pytest.mark.parametrize("rule", ["ng_exact", "geo_exact"])
def test_exact_rules_run_on_small_networks_with_the_dense_solver(rule: str) -> None:
    module = policy((2, 2), 1)
    problem = Surrogate(module, Gaussian(), torch.randn(20, 2, dtype=torch.float64))
    optimizer = NaturalGradient(module, Gaussian(), rule=rule, solver="dense", damping=0.1, control=Constant(), lr=0.1)
    before = optimizer.step(problem)
    assert float(problem.loss().detach()) < before


@pytest.mark.parametrize("control", [Constant(), LineSearch(), TrustRegion()], ids=["constant", "search", "trust"])
def test_every_controller_learns(control) -> None:
    task = Regression()
    optimizer = NaturalGradient(task.module, FixedGaussian(), lr=0.5, control=control, damping=0.1)
    losses = [optimizer.step(task) for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("control", [Constant(), LineSearch(), TrustRegion()], ids=["constant", "search", "trust"])
def test_every_controller_stays_inside_the_family(control) -> None:
    """Exponential geodesics end where the variance is infinite; far targets drive the log std there."""
    torch.manual_seed(0)
    module, family = nn.Sequential(nn.Linear(2, 1), FreeLogStd(1)), Gaussian()
    x, t = torch.randn(50, 2), 20 * torch.randn(50, 1)
    optimizer = NaturalGradient(module, family, rule="geo", alpha=1.0, solver="dense", control=control)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = -family.log_prob(module(x), t).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert optimizer.report.accepted
    assert 0 < float(module[1].log_std.detach()) < 3


@pytest.mark.parametrize("rule", FINITE)
def test_gradient_averaging_works_with_every_rule(rule: str) -> None:
    task = Regression()
    optimizer = NaturalGradient(task.module, FixedGaussian(), rule=rule, gradient_averaging=0.8, damping=0.3)
    losses = [optimizer.step(task) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]


def test_a_policy_stays_inside_its_trust_region_and_its_surrogate_falls() -> None:
    module = policy((4, 16, 16), 2)
    problem = Surrogate(module, Gaussian(), torch.randn(300, 4, dtype=torch.float64))
    optimizer = NaturalGradient(module, Gaussian(), rule="geo", control=TrustRegion(max_kl=0.02))
    before = optimizer.step(problem)
    report = optimizer.report
    assert float(problem.loss().detach()) < before
    assert report.predicted_kl == pytest.approx(0.02)
    assert report.actual_kl == pytest.approx(0.02, rel=0.1)
    assert 0 < report.residual_after < report.residual_before
    assert report.kappa == 1.0
    assert 0 < report.angle < 90
    assert report.correction_norm > 0


class Mixed(nn.Module):
    """An embedding, a recurrent cell and a norm before two Kronecker layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 8)
        self.cell = nn.GRUCell(8, 8)
        self.norm = nn.LayerNorm(8)
        self.hidden, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, index: Tensor) -> Tensor:
        word = self.embedding(index)
        state = self.cell(word, self.cell(word))
        return self.head(torch.tanh(self.hidden(self.norm(state))))


@pytest.mark.parametrize("solver", ["kfac", "pcg", "cg"])
@pytest.mark.parametrize("rule", ["ng", "geo"])
def test_parameters_without_a_kronecker_form_train_too(rule: str, solver: str) -> None:
    torch.manual_seed(0)
    module, index = Mixed(), torch.arange(6)
    target = torch.tensor([0, 1, 2, 0, 1, 2])
    before = {name: p.detach().clone() for name, p in module.named_parameters()}

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(index), target)
        loss.backward()
        return loss

    optimizer = NaturalGradient(module, Categorical(), rule=rule, solver=solver, control=TrustRegion(max_kl=0.1))
    losses = [optimizer.step(closure) for _ in range(25)]
    assert losses[-1] < 0.5 * losses[0]
    assert optimizer.rejected == 0
    assert all(not torch.equal(p, before[name]) for name, p in module.named_parameters())


def test_convolutions_and_keyword_arguments() -> None:
    torch.manual_seed(0)

    class Image(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(36, 2))

        def forward(self, *, image: Tensor, scale: float = 1.0) -> Tensor:
            return self.body(scale * image)

    module, x = Image(), torch.randn(40, 1, 5, 5)
    t = (x.mean((1, 2, 3)) > 0).float().unsqueeze(1).repeat(1, 2)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(module(image=x, scale=2.0), t)
        loss.backward()
        return loss

    optimizer = NaturalGradient(module, Bernoulli(), control=TrustRegion(max_kl=0.05))
    losses = [optimizer.step(closure) for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.ReLU(inplace=True), nn.ELU(inplace=True)], ids=str)
def test_values_seen_in_the_closure_are_those_of_the_network(activation: nn.Module) -> None:
    """The forward pass is not run again; what it left behind gives the same metric to the last bit."""
    task = Regression(nn.Sequential(nn.Linear(1, 10), activation, nn.Linear(10, 10), activation, nn.Linear(10, 1)))
    optimizer = NaturalGradient(task.module, FixedGaussian())
    _, flow = optimizer.flow(task)
    network, v = optimizer.geometry.network, torch.randn_like(flow.base)
    assert [len(values) for values in flow.batch.values] == [5]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in task.module.modules())
    seen, fresh = flow.at(flow.base).metric.linearisation, network.linearise(flow.base, flow.batch.calls[0])
    for a, b in zip(seen.second(v), fresh.second(v), strict=True):
        assert torch.equal(a, b)


def test_a_closure_that_calls_the_module_beside_the_loss() -> None:
    """The metric is measured on the inputs of the call that the loss depends on."""
    task = Regression()

    def closure() -> Tensor:
        loss = task()
        task.module(task.x[:3])
        return loss

    optimizer = NaturalGradient(task.module, FixedGaussian())
    _, flow = optimizer.flow(closure)
    (call,), (values,) = flow.batch.calls, flow.batch.values
    assert call.args[0] is task.x
    assert [len(value) for value in values] == [60, 60, 60]
    assert optimizer.step(closure) > optimizer.step(closure)


def test_schedulers_and_zero_learning_rate() -> None:
    task = Regression()
    optimizer = NaturalGradient(task.module, FixedGaussian(), lr=0.1, control=Constant())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    for expected in (0.1, 0.05, 0.025):
        optimizer.step(task)
        assert optimizer.report.h == pytest.approx(expected)
        scheduler.step()
    optimizer.param_groups[0]["lr"] = 0.0
    before = [p.detach().clone() for p in task.module.parameters()]
    optimizer.step(task)
    assert all(torch.equal(a, b) for a, b in zip(before, task.module.parameters(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rule", ["ng", "geof"])
def test_state_survives_save_and_load_bit_for_bit(rule: str, dtype: torch.dtype) -> None:
    """A run that is saved and loaded in the middle ends at the same bits as one that is not."""

    def make() -> tuple[Regression, NaturalGradient]:
        torch.manual_seed(0)
        task = Regression(nn.Sequential(nn.Linear(1, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 1)), dtype)
        settings = FactorSettings(update_every=3)
        return task, NaturalGradient(
            task.module, FixedGaussian(), rule=rule, gradient_averaging=0.5, factors=settings, seed=3
        )

    whole, whole_optimizer = make()
    for _ in range(9):
        whole_optimizer.step(whole)
    first, first_optimizer = make()
    for _ in range(4):
        first_optimizer.step(first)
    file = io.BytesIO()
    torch.save({"module": first.module.state_dict(), "optimizer": first_optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    second, second_optimizer = make()
    second.module.load_state_dict(saved["module"])
    second_optimizer.load_state_dict(saved["optimizer"])
    assert_equal(second_optimizer.state_dict(), first_optimizer.state_dict())
    for _ in range(5):
        second_optimizer.step(second)
    assert_equal(second_optimizer.state_dict(), whole_optimizer.state_dict())
    assert_equal(second.module.state_dict(), whole.module.state_dict())


def assert_equal(a: object, b: object) -> None:
    """Equal values in equal dtypes, all the way down."""
    assert type(a) is type(b)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    elif isinstance(a, dict) and isinstance(b, dict):
        assert list(a) == list(b)
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    else:
        assert a == b


class Counting(nn.Module):
    """Buffers of every sort: written in place, replaced, and constants that cannot be written into."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(1), nn.Linear(1, 1)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("ones", torch.ones(1, 1).expand(60, 1))
        self.register_buffer("graph", torch.eye(60).to_sparse())
        self.register_buffer("nothing", None)

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        return self.head(torch.tanh(self.norm(self.graph.to(x.dtype) @ x))) * self.ones


@pytest.mark.parametrize("outcome", ["accepted", "rejected", "interrupted"])
@pytest.mark.parametrize(("rule", "control"), [("mid", Constant(lr=0.1)), ("ng", LineSearch())])
def test_buffers_know_of_the_first_call_only(rule: str, control, outcome: str) -> None:
    """Batch statistics of midpoints and of trials that a line search refused are no part of the model."""
    task, once, calls = Regression(Counting()), Regression(Counting()), 0
    once()
    optimizer = NaturalGradient(task.module, FixedGaussian(), rule=rule, control=control)

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        loss = task()
        if calls > 1 and outcome == "interrupted":
            raise KeyboardInterrupt
        if calls > 1 and outcome == "rejected":
            task.module.head.bias.grad.fill_(math.nan)
            return loss * math.nan
        return loss

    with pytest.raises(KeyboardInterrupt) if outcome == "interrupted" else nullcontext():
        optimizer.step(closure)
    assert optimizer.report.accepted == (outcome == "accepted")
    assert calls >= 2
    for (name, ours), (_, theirs) in zip(task.module.named_buffers(), once.module.named_buffers(), strict=True):
        assert torch.equal(ours.to_dense(), theirs.to_dense()), name
    assert int(task.module.norm.num_batches_tracked) == 1


@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
def test_a_state_fits_a_module_of_another_precision(wide: torch.dtype) -> None:
    narrow = torch.float32 if wide is torch.float64 else torch.float64
    (ours, optimizer), (theirs, foreign) = (
        (task, NaturalGradient(task.module, FixedGaussian(), rule="geof", gradient_averaging=0.5))
        for task in (Regression(dtype=wide), Regression(dtype=narrow))
    )
    for _ in range(3):
        foreign.step(theirs)
    optimizer.load_state_dict(foreign.state_dict())
    memory = optimizer.memory
    assert memory.gradient is not None
    assert optimizer.last is not None
    assert {memory.gradient.dtype, optimizer.last.dtype} == {wide}
    assert {x.dtype for inverse in memory.factors.inverses for x in inverse} == {wide}
    assert {x.dtype for statistics in memory.factors.statistics for x in statistics} == {torch.float64}
    assert optimizer.step(ours) > optimizer.step(ours)
    assert optimizer.rejected == 0


def test_factors_of_another_shape_are_refused() -> None:
    """Full factors would broadcast where diagonal ones are expected."""
    task = Regression()
    full, diagonal = (
        NaturalGradient(task.module, FixedGaussian(), factors=FactorSettings(max_factor=n)) for n in (4096, 3)
    )
    full.step(task)
    with pytest.raises(ValueError, match="factors of other shapes than ours: was its max_factor another"):
        diagonal.load_state_dict(full.state_dict())
    diagonal.step(task)


def pickled(x: Any) -> Any:
    return pickle.loads(pickle.dumps(x))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("rule", ["ng", "geof"])
def test_a_copy_trains_on_like_the_original(rule: str, norm: bool, copied) -> None:
    """Bit for bit, on its own module, and without moving the original."""
    middle = [nn.LayerNorm(6), nn.Tanh()] if norm else [nn.ELU(0.5), nn.Linear(6, 6), nn.Sigmoid()]
    task = Regression(nn.Sequential(nn.Linear(1, 6), *middle, nn.Linear(6, 1), nn.Identity()))
    settings = FactorSettings(update_every=2)
    optimizer = NaturalGradient(task.module, FixedGaussian(), rule=rule, gradient_averaging=0.5, factors=settings)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for _ in range(3):
        optimizer.step(task)
        scheduler.step()
    other = copy.copy(task)
    other.module, twin = copied((task.module, optimizer))
    assert twin.module is other.module is not task.module
    assert all(a is b for a, b in zip(twin.param_groups[0]["params"], other.module.parameters(), strict=True))
    before = copied(task.module.state_dict())
    losses = [float(twin.step(other)) for _ in range(4)]
    assert_equal(task.module.state_dict(), before)
    assert losses == [float(optimizer.step(task)) for _ in range(4)]
    assert_equal(twin.state_dict(), optimizer.state_dict())
    assert_equal(other.module.state_dict(), task.module.state_dict())


def test_a_copy_of_the_optimizer_alone_has_a_module_of_its_own() -> None:
    task, other = Regression(), Regression()
    optimizer = NaturalGradient(task.module, FixedGaussian())
    twin = copy.deepcopy(optimizer)
    other.module = twin.module
    assert twin.step(other) > twin.step(other)
    assert optimizer.steps == 0


def test_the_same_seed_twice_gives_the_same_bits() -> None:
    ends = []
    for _ in range(2):
        task = Regression(dtype=torch.float32)
        optimizer = NaturalGradient(task.module, FixedGaussian(), seed=7)
        for _ in range(5):
            optimizer.step(task)
        ends.append(optimizer.geometry.network.layout.read())
    assert torch.equal(*ends)


def test_state_of_another_module_is_refused() -> None:
    task, other = Regression(), Regression(nn.Linear(1, 1))
    optimizer, foreign = (NaturalGradient(t.module, FixedGaussian()) for t in (task, other))
    foreign.step(other)
    with pytest.raises(ValueError, match="belongs to another module: ours has 31 parameters in 2 blocks"):
        optimizer.load_state_dict(foreign.state_dict())
    optimizer.step(task)


def test_an_exception_in_the_closure_leaves_the_parameters_where_they_were() -> None:
    task = Regression()
    optimizer = NaturalGradient(task.module, FixedGaussian(), rule="mid")
    before = optimizer.geometry.network.layout.read()
    calls = iter(range(2))

    def closure() -> Tensor:
        if next(calls) == 1:  # at the midpoint
            raise KeyboardInterrupt
        return task()

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    assert torch.equal(optimizer.geometry.network.layout.read(), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "geodesic"}, "unknown rule 'geodesic': choose one of ng, mid, geo, geof, ng_exact, geo_exact"),
        ({"solver": "lu"}, "unknown solver 'lu': choose one of kfac, pcg, cg, dense"),
        ({"rule": "geo_exact"}, "rule 'geo_exact' needs solver 'dense'"),
        ({"damping": -1.0}, "damping must be finite and not negative, not -1.0"),
        ({"alpha": 2.0}, r"alpha must lie in \[-1, 1\], not 2.0"),
        ({"gradient_averaging": 1.0}, r"gradient_averaging must lie in \[0, 1\)"),
        ({"lr": -0.1}, "lr must be finite and not negative"),
    ],
)
def test_wrong_arguments(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NaturalGradient(nn.Linear(1, 1), FixedGaussian(), **options)


class Returning(nn.Module):
    def __init__(self, shape) -> None:
        super().__init__()
        self.layer, self.shape = nn.Linear(1, 1), shape

    def forward(self, x: Tensor) -> Tensor:
        return self.shape(self.layer(x))


@pytest.mark.parametrize(
    ("shape", "got"),
    [(lambda z: z.squeeze(-1), r"a tensor of shape \(60,\)"), (lambda z: (z, z), "a tuple")],
    ids=["flat", "tuple"],
)
def test_outputs_that_are_no_parameters_of_a_family(shape, got: str) -> None:
    module, x = Returning(shape), torch.randn(60, 1)
    optimizer = NaturalGradient(module, Bernoulli())

    def closure() -> Tensor:
        out = module(x)
        loss = sum(part.sum() for part in out) if isinstance(out, tuple) else out.sum()
        loss.backward()
        return loss

    with pytest.raises(ValueError, match=f"as one tensor .* not {got}"):
        optimizer.step(closure)


def test_dictionaries_of_inputs() -> None:
    """As SB3's MultiInput policies take them; the norm makes the metric look at double precision too."""

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 1))

        def forward(self, inputs: dict[str, Tensor]) -> Tensor:
            return self.body(torch.cat([inputs["a"], inputs["b"]], -1))

    torch.manual_seed(0)
    module, inputs = Joined(), {"a": torch.randn(50, 1), "b": torch.randn(50, 2)}
    target = inputs["a"] * inputs["b"][:, :1]

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = 0.5 * (module(inputs) - target).square().mean()
        loss.backward()
        return loss

    optimizer = NaturalGradient(module, FixedGaussian(), control=TrustRegion(max_kl=0.05))
    losses = [optimizer.step(closure) for _ in range(12)]
    assert losses[-1] < 0.5 * losses[0]


def test_wrong_use() -> None:
    task = Regression()
    optimizer = NaturalGradient(task.module, FixedGaussian())
    with pytest.raises(ValueError, match="needs a closure"):
        optimizer.step()
    with pytest.raises(ValueError, match="must call the module"):
        optimizer.step(lambda: torch.tensor(1.0))
    with pytest.raises(ValueError, match="one parameter group"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    with pytest.raises(ValueError, match="no trainable parameters"):
        NaturalGradient(nn.Tanh(), FixedGaussian())
    assert "Kronecker, Linear" in optimizer.coverage()


FROZEN = {"a layer": ("0.weight", "0.bias"), "a weight": ("2.weight",), "a bias": ("0.bias",)}


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("rule", FINITE)
def test_E2_parameters_frozen_between_steps_stay(rule: str, solver: str, norm: bool) -> None:
    """To the last bit, though averages and the last displacement remember how they moved; the others go on."""
    middle = [nn.LayerNorm(10)] if norm else [nn.Tanh()]
    task = Regression(nn.Sequential(nn.Linear(1, 10), *middle, nn.Linear(10, 1)))
    control = TrustRegion(max_kl=0.05)
    optimizer = NaturalGradient(
        task.module, FixedGaussian(), rule=rule, solver=solver, gradient_averaging=0.9, control=control
    )
    for _ in range(2):
        optimizer.step(task)
    for names in FROZEN.values():
        before = {name: p.detach().clone() for name, p in task.module.named_parameters()}
        for name, p in task.module.named_parameters():
            p.requires_grad_(name not in names)
        for _ in range(2):
            optimizer.step(task)
        moved = {name for name, p in task.module.named_parameters() if not torch.equal(p, before[name])}
        assert moved == before.keys() - set(names)
    assert optimizer.rejected == 0
    assert optimizer.report.actual_kl <= 1.5 * 0.05


@pytest.mark.parametrize("rule", FINITE)
@pytest.mark.parametrize("solver", ["dense", "cg"])
@pytest.mark.parametrize("frozen", FROZEN)
def test_E2_a_step_is_that_of_a_module_frozen_from_the_start(frozen: str, solver: str, rule: str) -> None:
    """Where the metric is exact, whatever is frozen: the system is that of what is trained."""
    ends = []
    for late in (False, True):
        task = Regression()
        options: dict[str, Any] = {"rule": rule, "solver": CgSolver(False, 50) if solver == "cg" else solver}
        optimizer = NaturalGradient(task.module, FixedGaussian(), **options) if late else None
        for name, p in task.module.named_parameters():
            p.requires_grad_(name not in FROZEN[frozen])
        optimizer = optimizer or NaturalGradient(task.module, FixedGaussian(), **options)
        for _ in range(2):
            optimizer.step(task)
        ends.append(torch.cat([p.detach().reshape(-1) for p in task.module.parameters()]))
    torch.testing.assert_close(*ends, rtol=1e-7, atol=1e-7)


def test_E2_a_layer_frozen_for_a_while_trains_again() -> None:
    task = Regression()
    optimizer = NaturalGradient(task.module, FixedGaussian(), solver="kfac")
    for frozen in (True, False):
        task.module[0].requires_grad_(not frozen)
        before = task.module[0].weight.detach().clone()
        optimizer.step(task)
        assert torch.equal(task.module[0].weight, before) == frozen


@pytest.mark.parametrize("control", [Constant(0.05), LineSearch(0.05), TrustRegion(0.05, max_kl=9.0)], ids=repr)
def test_E8_the_controllers_own_longest_step_is_used(control: Controller) -> None:
    task = Regression()
    optimizer = NaturalGradient(task.module, FixedGaussian(), control=control)
    assert optimizer.param_groups[0]["lr"] == 0.05
    optimizer.step(task)
    assert optimizer.report.h == pytest.approx(0.05)
    optimizer.param_groups[0]["lr"] = 0.01
    optimizer.step(task)
    assert optimizer.report.h == pytest.approx(0.01), "a scheduler has the last word"


def test_E8_a_longest_step_that_is_given_twice_is_refused() -> None:
    module = nn.Linear(1, 1)
    with pytest.raises(ValueError, match=r"given twice: lr = 0.5, and 0.05 by the controller"):
        NaturalGradient(module, FixedGaussian(), lr=0.5, control=Constant(0.05))
    assert NaturalGradient(module, FixedGaussian(), lr=0.5, control=Constant(0.5)).param_groups[0]["lr"] == 0.5
    assert NaturalGradient(module, FixedGaussian()).param_groups[0]["lr"] == 1.0


def test_E17_step_returns_what_the_closure_returns() -> None:
    task = Regression(dtype=torch.float32)
    optimizer = NaturalGradient(task.module, FixedGaussian())
    expected = float(task().detach())
    loss = optimizer.step(task)
    assert loss.item() == expected
    assert loss.dtype is torch.float32
    assert not loss.requires_grad
    assert type(optimizer.step(lambda: float(task().detach()))) is float


@pytest.mark.parametrize(
    ("returned", "got"),
    [
        (lambda loss: None, "None"),
        (lambda loss: loss.expand(3), r"a tensor of shape \(3,\)"),
        (lambda loss: "x", "'x'"),
    ],
    ids=["none", "vector", "text"],
)
def test_E17_a_closure_that_returns_no_loss_is_refused_in_a_sentence(returned, got: str) -> None:
    task = Regression()
    optimizer = NaturalGradient(task.module, FixedGaussian())
    before = optimizer.geometry.network.layout.read()
    with pytest.raises(ValueError, match=f"the closure must return the loss, one number, not {got}"):
        optimizer.step(lambda: returned(task()))
    assert torch.equal(optimizer.geometry.network.layout.read(), before)


def test_E17_sparse_gradients_are_refused_by_name() -> None:
    module, index = nn.Sequential(nn.Embedding(5, 2, sparse=True), nn.Linear(2, 1)), torch.arange(5)
    optimizer = NaturalGradient(module, FixedGaussian())

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = module(index).square().mean()
        loss.backward()
        return loss

    with pytest.raises(ValueError, match=r"the gradient of 0\.weight is sparse, and must be dense"):
        optimizer.step(closure)
