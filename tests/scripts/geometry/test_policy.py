"""One policy in several parameterisations; how its updates differ is tested with the command."""

import pytest
import torch
from torch import Generator

from geonpg.scripts.geometry.batch import small_policy
from geonpg.scripts.geometry.policy import LINEAR, OTHERS, REFERENCE, Parameterisation, PolicyStudy


@pytest.mark.parametrize("parameterisation", [REFERENCE, *OTHERS], ids=lambda each: each.name)
def test_a_parameterisation_holds_the_same_policy(parameterisation: Parameterisation) -> None:
    policy = small_policy(Generator().manual_seed(0))
    held = parameterisation.apply(policy)
    observations = torch.randn(5, 11, dtype=torch.float64, generator=Generator().manual_seed(1))
    torch.testing.assert_close(held(observations), policy(observations), rtol=1e-12, atol=1e-12)
    parameters = [torch.cat([p.flatten() for p in each.parameters()]) for each in (held, policy)]
    assert torch.equal(*[each.sort().values for each in parameters]) == (parameterisation is REFERENCE)


def test_slopes_are_fitted_to_small_steps_above_rounding() -> None:
    kl = [1e-30, 1e-16, 1e-12, 1.0]  # rounding, twice of order 4, and a step that is too long
    study = PolicyStudy(
        0, (1e-9, 1e-8, 1e-6, 1e-2), (1e-3, 1e-2, 1e-1, 1.0), {"sigma": {"ng": kl}, LINEAR.name: {"ng": kl}}
    )
    assert study.fitted() == 3
    assert study.usable("sigma", "ng") == [(1e-2, 1e-16), (1e-1, 1e-12)]
    assert study.slope("sigma", "ng") == pytest.approx(4)
    assert study.linear_error("ng") == pytest.approx(1e-6)
