"""Discounted sums of rewards, as statistics of returns need them."""

import numpy as np
from numpy.typing import NDArray

from .functions import Array, helper


@helper
def discounted_sums(rewards: Array, dones: NDArray[np.bool_], gamma: float, sums: Array) -> Array:
    """Return the discounted sum of rewards at every step of every episode: [steps, n].

    sums: those before the first step, [n]; afterwards those that the next step goes on from, zero for new episodes.
    """
    found = np.empty(rewards.shape)
    for t in range(len(rewards)):
        for i in range(len(sums)):
            found[t, i] = sums[i] * gamma + rewards[t, i]
            sums[i] = 0.0 if dones[t, i] else found[t, i]
    return found
