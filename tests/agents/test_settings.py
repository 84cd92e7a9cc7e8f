"""Settings of the optimisers: made from an agent's keywords, and checked under their names."""

from dataclasses import FrozenInstanceError, fields, replace
from inspect import signature
from typing import Any

import pytest

from geonpg.agents import ACKTR
from geonpg.agents.settings import ActorSettings, CriticSettings, settings_of
from geonpg.errors import Refused

AGENT = ACKTR("MlpPolicy", "CartPole-v1", device="cpu")
ACTOR, CRITIC = settings_of(AGENT, ActorSettings), settings_of(AGENT, CriticSettings)

WRONG: list[tuple[str, Any, str]] = [
    ("target_kl", 0, "target_kl must be positive, not 0"),
    ("target_kl", None, "target_kl must be positive, not None"),
    ("connection", "none", "unknown connection 'none': choose one of joint, blocks"),
    ("trust_region", "guessed", "unknown trust_region 'guessed': choose one of predicted, actual, solver"),
    ("alpha", 1.5, r"alpha must lie in \[-1, 1\], not 1.5"),
    ("damping", -1.0, "damping must be finite and not negative, not -1.0"),
    ("damping", float("inf"), "damping must be finite and not negative, not inf"),
    ("gradient_averaging", 1.0, r"gradient_averaging must lie in \[0, 1\), not 1.0"),
    ("factor_averaging", -0.1, r"factor_averaging must lie in \[0, 1\), not -0.1"),
    ("cg_iterations", 0, "cg_iterations must be at least 1, not 0"),
    ("factors_every", 0, "factors_every must be at least 1, not 0"),
    ("critic_target_kl", -1, "critic_target_kl must be positive, or 0 for no limit, not -1"),
    ("critic_target_kl", None, "critic_target_kl must be positive, or 0 for no limit, not None"),
    ("critic_learning_rate", 0.0, "critic_learning_rate must be positive, not 0.0"),
    ("critic_updates", 0, "critic_updates must be at least 1, not 0"),
    ("critic_damping", -0.5, "critic_damping must be finite and not negative, not -0.5"),
    ("critic_gradient_averaging", 1, r"critic_gradient_averaging must lie in \[0, 1\), not 1"),
    ("critic_curvature_every", 0, "critic_curvature_every must be at least 1, not 0"),
    ("critic_cg_iterations", 0, "critic_cg_iterations must be at least 1, not 0"),
]


@pytest.mark.parametrize(("name", "value", "sentence"), WRONG)
def test_a_wrong_value_is_refused_under_its_name(name: str, value: Any, sentence: str) -> None:
    settings = ACTOR if name in {field.name for field in fields(ACTOR)} else CRITIC
    with pytest.raises(Refused, match=f"^{sentence}$"):
        replace(settings, **{name: value})
    with pytest.raises(Refused, match=f"^{sentence}$"):
        ACKTR("MlpPolicy", "CartPole-v1", device="cpu", **{name: value})


def test_every_setting_is_a_keyword_of_the_agent() -> None:
    names = {field.name for kind in (ActorSettings, CriticSettings) for field in fields(kind)}
    assert names <= set(signature(ACKTR).parameters)
    assert all(getattr(ACTOR, field.name) == getattr(AGENT, field.name) for field in fields(ACTOR))


def test_settings_stand() -> None:
    with pytest.raises(FrozenInstanceError):
        ACTOR.target_kl = 1.0
