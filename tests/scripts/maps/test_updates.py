"""Updates from a recorded batch, by every kind of variant."""

import pytest
import torch
from torch import Tensor

from geonpg.agents.outputs import Networks
from geonpg.agents.stepping import Stepper
from geonpg.configs import load
from geonpg.kfac import KlSearch, NaturalGradient, Solver, StepFailure
from geonpg.kfac.solvers import System
from geonpg.scripts.maps.grid import Variant
from geonpg.scripts.maps.recorded import Recorded, record
from geonpg.scripts.maps.updates import GROWTH, LONGEST, Updater
from geonpg.scripts.runs.building import make_agent, make_env

SMALL = {"n_envs": 8, "n_steps": 64, "hidden": (16,), "critic_hidden": (16,)}
KLS = (0.01, 0.1)


@pytest.fixture(scope="module")
def recorded() -> tuple[Networks, Recorded]:
    settings = load("default", "Reacher-v4", SMALL)
    agent = make_agent(settings, make_env(settings, "Reacher-v4", 8, 0), 0)
    return agent.networks, record(Stepper(agent, 10_000), 512, seed=1)


def parameters(networks: Networks) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in networks.actor_parameters])


@pytest.mark.parametrize("rule", ["ng", "mid", "geo"])
@pytest.mark.parametrize("solver", ["kfac", "pcg"])
def test_several_steps_along_one_curve_are_those_of_the_optimiser(
    recorded: tuple[Networks, Recorded], rule: str, solver: str
) -> None:
    networks, batch = recorded
    start = parameters(networks)
    updater = Updater(networks, batch, every=1)
    found = []
    for made in updater.made(Variant(rule, solver), dict.fromkeys(KLS, 0.1)):
        assert made.actual_kl == pytest.approx(made.kl, rel=0.02)
        found.append(parameters(networks))
    assert torch.equal(parameters(networks), start)
    for kl, expected in zip(KLS, found, strict=True):
        control = KlSearch(LONGEST, max_kl=kl, growth=GROWTH)
        optimizer = NaturalGradient(
            networks.actor, networks.family, rule=rule, solver=solver, control=control, damping=0.1
        )
        optimizer.step_outputs(batch.inputs, lambda z: batch.loss(networks, z))
        assert torch.allclose(parameters(networks), expected, atol=1e-6)
        updater.restore()


def test_what_is_promised_is_what_a_short_step_gains(recorded: tuple[Networks, Recorded]) -> None:
    networks, batch = recorded
    for made in Updater(networks, batch, every=1).made(Variant("ng"), {1e-5: 0.1}):
        assert batch.gain(networks) == pytest.approx(made.promised, rel=0.02)


def test_without_a_search_steps_have_the_predicted_kl(recorded: tuple[Networks, Recorded]) -> None:
    networks, batch = recorded
    for made in Updater(networks, batch, every=1).made(Variant("geo", search=False), dict.fromkeys(KLS, 0.1)):
        assert made.predicted_kl == pytest.approx(made.kl / 4**made.tries, rel=1e-4)


@pytest.mark.parametrize("substeps", [2, 4])
def test_substeps_reach_a_kl_together(recorded: tuple[Networks, Recorded], substeps: int) -> None:
    networks, batch = recorded
    for made in Updater(networks, batch, every=1).made(Variant("ng", substeps=substeps), dict.fromkeys(KLS, 0.1)):
        assert made.actual_kl == pytest.approx(made.kl, rel=0.15)
        assert batch.gain(networks) > 0


def test_clipped_minibatches_stop_where_a_kl_is_reached(recorded: tuple[Networks, Recorded]) -> None:
    networks, batch = recorded
    start, found = parameters(networks), []
    for made in Updater(networks, batch, every=1).made(Variant("clip"), dict.fromkeys((3e-4, 3e-3, 100.0), 0.0)):
        found.append((made.actual_kl, batch.gain(networks)))
    (first, _), (second, _), (last, gain) = found
    assert first <= 3e-4
    assert 3e-4 < second <= 3e-3  # the step after it exceeds that
    assert last < 100  # the epochs ended before
    assert gain > 0.03
    assert torch.equal(parameters(networks), start)


class Failing(Solver):
    """A solver that cannot solve."""

    @property
    def uses_factors(self) -> bool:
        return False

    def solve(self, system: System, b: Tensor) -> Tensor:
        raise StepFailure("never")

    def solve_both(self, system: System, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        raise StepFailure("never")


def test_a_failed_solve_leaves_the_policy_as_it_was(
    recorded: tuple[Networks, Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    networks, batch = recorded
    start = parameters(networks)
    monkeypatch.setattr("geonpg.scripts.maps.updates.solver_of", lambda *_: Failing())
    made = []
    for each in Updater(networks, batch, every=1).made(Variant("ng"), dict.fromkeys(KLS, 0.1)):
        assert torch.equal(parameters(networks), start)
        made.append((each.kl, each.actual_kl))
    assert made == [(kl, 0.0) for kl in KLS]
