"""What a run has recorded, and what shows that it has not."""

from geonpg.agents.forms import misfit
from geonpg.configs import Settings
from geonpg.scripts.runs.folder import CurveRow, Evaluation
from geonpg.scripts.runs.history import FORM, History

SETTINGS = Settings(n_envs=2, n_steps=32, eval_every=100, eval_episodes=1)


def history(*evaluations: int) -> History:
    """A history of 256 steps, with evaluations at these."""
    found = History(evaluations=[Evaluation(steps, 1.0, 0.0, [1.0]) for steps in evaluations])
    for steps in (128, 256):
        found.record(CurveRow(steps, 1.0, 2.0, 0.1, 0.2, 0.3, 0.4, 0))
    return found


def test_a_checkpoint_holds_rows_as_lists_and_gives_them_back() -> None:
    whole = history(128, 256)
    state = whole.state()
    assert not misfit(state, FORM)
    assert state["evaluations"] == [[128, 1.0, 0.0, [1.0]], [256, 1.0, 0.0, [1.0]]]
    assert all(type(row) is list for name in ("curve", "evaluations", "times") for row in state[name])
    assert History.of_state(state) == whole


def test_the_best_is_the_first_of_equals() -> None:
    assert History().best is None
    found = History(evaluations=[Evaluation(steps, mean, 0.0, []) for steps, mean in ((1, 1.0), (2, 3.0), (3, 3.0))])
    assert found.best is not None
    assert found.best.steps == 2


def test_contradictions_are_found() -> None:
    assert history(128, 256).contradiction(SETTINGS, 256) == ""
    assert "due at" in history(128).contradiction(SETTINGS, 384)
    assert "due at" in history(128, 128).contradiction(SETTINGS, 256)
    assert "episodes" in history(128, 256).contradiction(Settings(eval_episodes=3), 256)
    late = history(128, 256)
    late.times.pop()
    assert "same steps" in late.contradiction(SETTINGS, 256)
