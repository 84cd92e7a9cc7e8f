"""Returns, lengths and time limits, against counting by hand."""

import numpy as np
import pytest

from geonpg.envs.episodes import Episodes

EVERY = np.arange(3)


def test_returns_and_lengths_are_those_of_the_episode() -> None:
    episodes = Episodes(3, None)
    for _ in range(4):
        assert not episodes.add_step(np.array([1.0, 2.0, 3.0])).any()
    episodes.restart(np.array([1]))
    episodes.add_step(np.ones(3))
    assert episodes.returns.tolist() == [5, 1, 13]
    assert episodes.lengths.tolist() == [5, 1, 5]


def test_each_episode_has_the_whole_time_limit() -> None:
    """Environments that restart at different steps time out at different steps."""
    rng, episodes, counted = np.random.default_rng(0), Episodes(3, 5), np.zeros(3, int)
    timeouts = 0
    for _ in range(200):
        counted += 1
        late = episodes.add_step(np.zeros(3))
        assert np.array_equal(late, counted == 5)
        timeouts += int(late.sum())
        ended = np.flatnonzero(late | (rng.uniform(size=3) < 0.1))
        if len(ended):
            episodes.restart(ended)
            counted[ended] = 0
    assert timeouts > 20


def test_no_timeout_is_handed_out_without_being_copied_and_cannot_be_changed() -> None:
    flags = Episodes(3, 5).add_step(np.zeros(3))
    with pytest.raises(ValueError, match="read-only"):
        flags[0] = True


def test_restored_episodes_go_on() -> None:
    episodes = Episodes(3, 5)
    for _ in range(7):
        episodes.add_step(np.ones(3))
        episodes.restart(EVERY)
    episodes.restore([1.5, 2.5, 3.5], [4, 0, 3])
    assert episodes.add_step(np.ones(3)).tolist() == [True, False, False]
    assert episodes.returns.tolist() == [2.5, 3.5, 4.5]
    assert episodes.lengths.tolist() == [5, 1, 4]
    assert episodes.add_step(np.ones(3)).tolist() == [True, False, True]
