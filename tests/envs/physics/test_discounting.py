"""Discounted sums against numpy's, bit by bit."""

import numpy as np

from geonpg.envs.physics.discounting import discounted_sums


def test_sums_are_numpys_and_go_on_where_they_ended() -> None:
    rng = np.random.default_rng(0)
    rewards, dones = rng.normal(size=(50, 7)), rng.uniform(size=(50, 7)) < 0.1
    sums, truth = rng.normal(size=7), []
    kept = sums.copy()
    for reward, done in zip(rewards, dones, strict=True):
        kept = kept * 0.97 + reward
        truth.append(kept.copy())
        kept[done] = 0
    first = discounted_sums(rewards[:20], dones[:20], 0.97, sums)
    rest = discounted_sums(rewards[20:], dones[20:], 0.97, sums)
    assert np.array_equal(np.concatenate([first, rest]), truth)
    assert np.array_equal(sums, kept)
