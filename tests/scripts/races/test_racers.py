"""Contestants train as they would on their own, whoever looks at the clock."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from stable_baselines3.common.base_class import BaseAlgorithm

from geonpg.agents import ACKTR
from geonpg.scripts.races import racers
from geonpg.scripts.races.clock import Trained
from geonpg.scripts.races.contestants import CONTESTANTS
from geonpg.scripts.races.entry import EPISODES, evaluate
from geonpg.scripts.races.racers import BaselineRacer, OurRacer, Racer, RLtoolsRacer, racer_of
from geonpg.scripts.runs.baseline_plan import make_baseline

PENDULUM = "InvertedPendulum-v4"
ROLLOUT = 16 * 64  # steps of ours


def weights(policy: object) -> list[torch.Tensor]:
    assert isinstance(policy, BaseAlgorithm)
    return [value.clone() for value in policy.policy.state_dict().values()]


def trained_for(racer: Racer, steps: int, every: int, look: Callable[[Trained], object]) -> Trained:
    """Train for so many steps, and look now and then; returns what there is at the end."""
    latest: list[Trained] = []

    def left(trained: Trained) -> float:
        latest[:] = [trained]
        if trained.steps % every == 0:
            look(trained)
        return 1.0 - trained.steps / steps

    racer.train(left)
    return latest[0]


def test_evaluations_do_not_disturb_ours_on_its_fast_path() -> None:
    """The same bits with and without, in compiled rollouts, with the critic's fit left to the next rollout."""
    rolled: list[bool] = []

    def look(trained: Trained) -> None:
        assert isinstance(trained.policy, ACKTR)
        rolled.append(trained.policy.rolled)
        assert len(evaluate(PENDULUM, 3, trained)) == EPISODES

    looked = trained_for(OurRacer(PENDULUM, 3), 4 * ROLLOUT, ROLLOUT, look)
    alone = trained_for(OurRacer(PENDULUM, 3), 4 * ROLLOUT, ROLLOUT, lambda trained: None)
    assert rolled == [False, True, True, True, True]
    assert looked.steps == alone.steps == 4 * ROLLOUT
    assert all(map(torch.equal, weights(looked.policy), weights(alone.policy)))


@pytest.mark.parametrize(("algorithm", "steps", "plain_steps"), [("ppo", 128, 96), ("sac", 150, 149)])
def test_a_baseline_is_what_its_class_makes_of_its_settings(algorithm: str, steps: int, plain_steps: int) -> None:
    """To the last bit; when the time is up, neither half a rollout nor one more step is learnt from."""
    racer = BaselineRacer(PENDULUM, 3, algorithm)
    torch.set_num_threads(1)
    found = trained_for(racer, steps, 50, lambda trained: evaluate(PENDULUM, 3, trained))
    env, plain = make_baseline(PENDULUM, 3, racer.config)
    plain.learn(plain_steps)
    env.close()
    assert found.steps == steps
    assert all(map(torch.equal, weights(found.policy), weights(plain)))
    assert (found.normalization is not None) == (algorithm == "ppo")


def test_a_warm_up_chooses_threads_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racers, "WARM_STEPS", 32)
    racer = BaselineRacer(PENDULUM, 3, "ppo")
    cold = trained_for(racer, 64, 64, lambda trained: None)
    chosen = racer.warm_up()
    assert chosen["torch_threads"] == torch.get_num_threads()
    torch.set_num_threads(1)
    warm = trained_for(racer, 64, 64, lambda trained: None)
    assert all(map(torch.equal, weights(cold.policy), weights(warm.policy)))


@pytest.mark.parametrize("contestant", CONTESTANTS)
def test_everyone_has_a_racer(contestant: str) -> None:
    if contestant == "sbx-sac" and find_spec("sbx") is None:
        pytest.skip("SBX is not installed")
    kind: dict[str, Any] = {"geonpg": OurRacer, "rltools-ppo": RLtoolsRacer}
    assert type(racer_of(contestant, PENDULUM, 0)) is kind.get(contestant, BaselineRacer)


@pytest.mark.skipif(find_spec("sbx") is None, reason="SBX is not installed")
def test_sbx_trains_and_is_evaluated() -> None:
    racer, found = BaselineRacer(PENDULUM, 0, "sbx-sac"), list[float]()
    assert racer.warm_up() == {}
    trained_for(racer, 120, 120, lambda trained: found.extend(evaluate(PENDULUM, 0, trained)))
    assert len(found) == EPISODES
