"""One dataclass holds every default; a wrong value is refused in one sentence."""

import math
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from geonpg.configs import FIELDS, Settings, help_of, legal_words
from geonpg.errors import Refused

# What each type refuses, whatever the range.
FOREIGN: dict[Any, list[Any]] = {
    bool: [1, 0.0, "true", None],
    int: [True, 1.5, math.inf, "1", None, [1]],
    float: [True, "1", None, math.nan, math.inf, -math.inf, 10**400],
    str: [1, None, "", "GEO", ["geo"]],
    tuple[int, ...]: [64, "64,64", [64.5], [True], None, {64}],
}

AT_LEAST_1 = ("an integer of at least 1", [1, 7, 7.0, 10**20], [0, -1])
ITERATIONS = ("an integer from 1 to 10,000", [1, 1e4], [0, -1, 10_001, 1e300])
NOT_NEGATIVE = ("a finite number of at least 0", [0, 0.5], [-1e-9])
POSITIVE = ("a finite number above 0", [1e-9, 3], [0, -1.0])
UNIT = ("a finite number in [0, 1]", [0, 0.5, 1], [-0.1, 1.1])
AVERAGING = ("a finite number in [0, 1)", [0, 0.99], [-0.1, 1])
BOOLEAN = ("true or false", [True, False], [])
SIZES = (
    "integers from 1 to 16,384, at most 64 of them, such as 64,64",
    [(), (3,), [3, 4.0]],
    [(64, 0), (-1,), (1_000_000,), (8,) * 65],
)
METHOD = ("one of ng, mid, geo, geof", ["ng", "mid", "geo", "geof"], ["adam"])
SOLVER = ("one of kfac, pcg, cg", ["kfac", "pcg", "cg"], ["dense"])
TRUST_REGION = ("one of predicted, actual, solver", ["predicted", "actual", "solver"], ["guessed"])
ACTIVATION = ("one of tanh, relu, elu", ["tanh", "relu", "elu"], ["gelu"])

# Of each key: its legal values in words, some that are legal, some that are not.
CONTRACT = {
    **dict.fromkeys(["factors_every", "curvature_every", "critic_curvature_every", "eval_every"], AT_LEAST_1),
    **dict.fromkeys(["critic_updates", "cg_iterations", "critic_cg_iterations"], ITERATIONS),
    "n_envs": ("an integer from 1 to 16,384", [1, 16_384], [0, 16_385, 10**20]),
    "n_steps": ("an integer from 1 to 1,000,000", [1, 1e6], [0, 1_000_001, 10**9]),
    "steps": ("an integer from 1 to 999,999,999,999", [1, 1e6], [0, -1, 10**12, 10**20]),
    **dict.fromkeys(["frames", "eval_episodes"], ("an integer from 1 to 1,000", [1, 1000], [0, -1, 1001, 10**9])),
    "torch_threads": ("an integer from 1 to 1,024", [1, 1024], [0, 1025]),
    "env_threads": ("an integer from 0 to 1,024", [0, 7], [-1, 10**14]),
    **dict.fromkeys(["gamma", "gae_lambda", "critic_lambda"], UNIT),
    **dict.fromkeys(["normalize_observations", "normalize_rewards", "scale_actions", "calibrate"], BOOLEAN),
    **dict.fromkeys(["normalize_advantage", "ortho_init", "unit_rows", "anneal", "cautious"], BOOLEAN),
    **dict.fromkeys(["factored_damping", "critic_extras", "limits_terminate"], BOOLEAN),
    **dict.fromkeys(["clip", "learning_rate", "target_kl", "critic_learning_rate"], POSITIVE),
    **dict.fromkeys(["damping", "critic_damping", "critic_target_kl", "ent_coef", "advantage_floor"], NOT_NEGATIVE),
    **dict.fromkeys(["gradient_averaging", "factor_averaging", "critic_gradient_averaging"], AVERAGING),
    "alpha": ("a finite number in [-1, 1]", [-1, 0.5, 1], [-1.1, 2]),
    "log_std_init": ("a finite number in [-20, 20]", [-20, 0, 1.5], [-21, 1e3]),
    "method": METHOD,
    "connection": ("one of joint, blocks", ["joint", "blocks"], ["none"]),
    "trust_region": TRUST_REGION,
    **dict.fromkeys(["solver", "critic_solver"], SOLVER),
    **dict.fromkeys(["activation", "critic_activation"], ACTIVATION),
    **dict.fromkeys(["hidden", "critic_hidden"], SIZES),
}


def test_every_field_has_a_contract_and_one_line_of_help() -> None:
    assert set(CONTRACT) == set(FIELDS) == {f.name for f in fields(Settings)}
    helps = [help_of(key) for key in FIELDS]
    assert all(line and line.isprintable() for line in helps)
    assert len(set(helps)) == len(helps)
    assert help_of("method").endswith(": one of ng, mid, geo, geof")


@pytest.mark.parametrize("key", FIELDS)
def test_legal_values_are_taken_in_one_form(key: str) -> None:
    kind = FIELDS[key].type
    for value in CONTRACT[key][1]:
        taken = getattr(replace(Settings(), **{key: value}), key)
        assert taken == (tuple(value) if isinstance(value, list) else value)
        assert type(taken) is (tuple if kind == tuple[int, ...] else kind)
        assert kind != tuple[int, ...] or all(type(size) is int for size in taken)


@pytest.mark.parametrize("key", FIELDS)
def test_a_wrong_value_is_refused_with_the_legal_ones(key: str) -> None:
    words, _, wrong = CONTRACT[key]
    assert legal_words(key) == words
    for value in [*wrong, *FOREIGN[FIELDS[key].type]]:
        with pytest.raises(Refused, match=f"^{key} must be ") as refused:
            Settings(**{key: value})
        assert str(refused.value) == f"{key} must be {words}, not {value!r}"
        assert str(refused.value).isprintable(), "one line"


def test_settings_are_values() -> None:
    assert Settings(learning_rate=1.0) == Settings(hidden=[64, 64], learning_rate=1)
    assert hash(Settings(learning_rate=1.0)) == hash(Settings(hidden=[64, 64], learning_rate=1))
    with pytest.raises(FrozenInstanceError):
        Settings().gamma = 0.5
