"""RLtools' process, by a stand-in that needs no compiler, and as it is where it is installed."""

from importlib.util import find_spec
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from geonpg.scripts.races import rltools_process
from geonpg.scripts.races.clock import Trained
from geonpg.scripts.races.entry import EPISODES, evaluate
from geonpg.scripts.races.racers import RLtoolsRacer
from geonpg.scripts.races.rltools_process import NotStarted, RLtools
from geonpg.scripts.races.rltools_worker import factory

# Says what it was asked for, and acts by the first number of an observation.
WORKER = """
import json, sys
asked = []
print(json.dumps({"steps": 0, "cpu": 0.0, "actions": []}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    asked.append(*request)
    assert asked[0] == "begin"
    actions = [[row[0]] for row in request.get("act", ())]
    print(json.dumps({"steps": 50 * request.get("train", 0), "cpu": 1.0, "actions": actions}), flush=True)
"""


@pytest.fixture
def _stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stand_in.py").write_text(WORKER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(rltools_process, "WORKER", "stand_in")


@pytest.mark.usefixtures("_stand_in")
def test_it_trains_an_update_at_a_time_and_acts_within_bounds() -> None:
    racer, seen = RLtoolsRacer("InvertedPendulum-v4", 0), list[int]()
    racer.warm_up()

    def left(trained: Trained) -> float:
        seen.append(trained.steps)
        if trained.steps == 100:
            actions, memory = racer.predict(np.array([[-9.0, 0], [-1, 0], [0, 0], [0.5, 0], [2, 0]]))
            assert actions.tolist() == [[-3], [-3], [0], [1.5], [3]]  # the task's bounds are -3 and 3
            assert memory is None
        return 1 - trained.steps / 200

    racer.train(left)
    assert seen == [0, 50, 100, 150, 200]
    assert racer.process.process.returncode == 0


@pytest.mark.usefixtures("_stand_in")
def test_its_process_ends_with_a_training_that_fails() -> None:
    racer = RLtoolsRacer("InvertedPendulum-v4", 0)
    racer.warm_up()

    def left(trained: Trained) -> float:
        raise KeyError

    with pytest.raises(KeyError):
        racer.train(left)
    assert racer.process.process.returncode == 0


@pytest.mark.skipif(find_spec("rltools") is not None, reason="it is installed")
def test_where_it_is_not_installed_its_process_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotStarted, match="No module named 'rltools'"):
        RLtools("HalfCheetah-v4", str(tmp_path))


# RLtools as far as an environment that fails while it trains meets it.
FAILING = """
class PPO:
    def __init__(self, make, interface_name="", enable_evaluation=True, TOTAL_STEP_LIMIT=1, N_ENVIRONMENTS=1,
                 ON_POLICY_RUNNER_STEPS_PER_ENV=1):
        self.make = make
    def State(self, seed):
        self.env = self.make()
        return self
    def step(self):
        self.env.step(self.env.action_space.sample())
"""
BROKEN = """
import gymnasium
class Broken(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Box(-1, 1, (1,))
    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}
    def step(self, action):
        raise OSError("it burns")
gymnasium.register("Broken-v0", Broken)
"""


def test_what_its_environment_raises_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rltools.py").write_text(FAILING)
    (tmp_path / "broken_steps.py").write_text(BROKEN)
    for project in ("mkl", "mkl_include"):
        (tmp_path / f"{project}-1.dist-info").mkdir()
        (tmp_path / f"{project}-1.dist-info/METADATA").write_text(f"Name: {project}\nVersion: 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    process = RLtools("broken_steps:Broken-v0", str(tmp_path))
    process.begin()
    with pytest.raises(NotStarted, match="OSError: it burns"):
        process.train(1)
    process.close()


@pytest.mark.skipif(find_spec("rltools") is None, reason="it is not installed")
def test_its_policy_is_evaluated_deterministically_where_it_is_installed() -> None:
    """On actions from -3 to 3; slow: its loop is compiled."""
    racer, returns = RLtoolsRacer("InvertedPendulum-v4", 0), list[list[float]]()
    racer.warm_up()

    def left(trained: Trained) -> float:
        returns.append(evaluate("InvertedPendulum-v4", 0, trained).tolist())
        assert returns[-1] == evaluate("InvertedPendulum-v4", 0, trained).tolist()
        return 1 - trained.steps / (3 * 4096)

    racer.train(left)
    assert [len(each) for each in returns] == [EPISODES] * 4
    assert np.mean(returns[-1]) > np.mean(returns[0])


@pytest.mark.parametrize("env_id", ["HalfCheetah-v4", "InvertedPendulum-v4"])
def test_its_environments_clip_actions_and_say_that_they_are_bounded(env_id: str) -> None:
    make = factory(env_id, 0)
    ours, theirs = make(), gymnasium.make(env_id)
    assert isinstance(ours.action_space, gymnasium.spaces.Box)
    assert isinstance(theirs.action_space, gymnasium.spaces.Box)
    assert np.abs(ours.action_space.low).max() == np.abs(ours.action_space.high).max() == 1
    for env in (ours, theirs):
        env.reset(seed=3)
    observation, reward, *_ = ours.step(np.full(ours.action_space.shape, 7, np.float32))
    expected = theirs.step(theirs.action_space.high)
    assert observation.tolist() == expected[0].tolist()
    assert reward == expected[1]
