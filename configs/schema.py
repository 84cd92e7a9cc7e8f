"""Every setting of a training run: its default, its legal values and one line of help."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar

from geonpg.errors import Refused

T = TypeVar("T")
LARGEST_SEED = 2**32 - 1  # that numpy takes


@dataclass(frozen=True)
class Kind:
    """A type of setting: its name in messages, a test of values, the form they are stored in, and a parser of text."""

    words: str
    holds: Callable[[Any], bool]
    form: Callable[[Any], Any]
    parse: Callable[[str], Any]


@dataclass(frozen=True)
class Legal:
    """The values of its type that a setting takes, in words and as a test."""

    words: str
    test: Callable[[Any], bool]


def is_int(value: Any) -> bool:
    """Return whether this is an integer; booleans are not, although Python says so."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Return whether this is a whole number: 1000000, or 1e6, which means the same."""
    return is_int(value) or (isinstance(value, float) and value.is_integer())


def is_finite(value: Any) -> bool:
    """Return whether this is a number that a float holds."""
    return (is_int(value) or isinstance(value, float)) and abs(value) <= sys.float_info.max


def are_whole(value: Any) -> bool:
    """Return whether this is a list of whole numbers."""
    return isinstance(value, list | tuple) and all(map(is_whole, value))


def parse_bool(text: str) -> bool:
    """Read true or false, in any case; ValueError if it is neither."""
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def parse_int(text: str) -> int:
    """Read 1000000, 1_000_000 or 1e6; ValueError if it is not whole."""
    try:
        return int(text)
    except ValueError:
        if not is_whole(number := float(text)):
            raise
        return int(number)


def parse_ints(text: str) -> tuple[int, ...]:
    """Read 64,64; empty text is an empty list."""
    return tuple(map(parse_int, text.split(","))) if text else ()


KINDS: Mapping[Any, Kind] = {
    bool: Kind("true or false", lambda value: isinstance(value, bool), bool, parse_bool),
    int: Kind("an integer", is_whole, int, parse_int),
    float: Kind("a finite number", is_finite, float, float),
    str: Kind("", lambda value: isinstance(value, str), str, str),
    tuple[int, ...]: Kind("integers", are_whole, lambda value: tuple(map(int, value)), parse_ints),
}


def one_of(*names: str) -> Legal:
    """Allow these names."""
    return Legal(f"one of {', '.join(names)}", lambda value: value in names)


def at_least(low: int) -> Legal:
    """Allow values from `low` on."""
    return Legal(f"of at least {low}", lambda value: value >= low)


def within(low: int, high: int) -> Legal:
    """Allow values between bounds, these included."""
    return Legal(f"in [{low}, {high}]", lambda value: low <= value <= high)


def up_to(high: int, low: int = 1) -> Legal:
    """Allow counts from `low` to `high`, above which no machine and no patience would do."""
    return Legal(f"from {low} to {high:,}", lambda value: low <= value <= high)


ANY = Legal("", lambda value: True)
POSITIVE = Legal("above 0", lambda value: value > 0)
AVERAGING = Legal("in [0, 1)", lambda value: 0 <= value < 1)
WIDEST, DEEPEST = 16_384, 64  # units of a layer, and number of layers
SIZES = Legal(
    f"from 1 to {WIDEST:,}, at most {DEEPEST} of them, such as 64,64",
    lambda value: len(value) <= DEEPEST and all(1 <= size <= WIDEST for size in value),
)
METHODS = ("ng", "mid", "geo", "geof")
SOLVERS = one_of("kfac", "pcg", "cg")
CONNECTIONS = one_of("joint", "blocks")
TRUST_REGIONS = one_of("predicted", "actual", "solver")
ACTIVATIONS = one_of("tanh", "relu", "elu")


def setting(default: T, help: str, legal: Legal = ANY) -> T:
    """Declare a setting with its default, one line of help and its legal values."""
    return field(default=default, metadata={"help": help, "legal": legal})


@dataclass(frozen=True)
class Settings:
    """The settings of a training run: rollout, policy, critic, run. A wrong value raises Refused."""

    n_envs: int = setting(16, "environments stepped side by side", up_to(16_384))
    n_steps: int = setting(64, "steps of each environment per update", up_to(1_000_000))
    gamma: float = setting(0.99, "discount of future rewards", within(0, 1))
    gae_lambda: float = setting(0.95, "lambda of the advantages (GAE)", within(0, 1))
    normalize_observations: bool = setting(True, "observations with running mean 0 and variance 1")
    normalize_rewards: bool = setting(True, "rewards divided by the running deviation of their discounted sum")
    clip: float = setting(10.0, "largest size of a normalised observation or reward", POSITIVE)
    frames: int = setting(1, "observations of the last steps shown side by side, this many", up_to(1000))
    scale_actions: bool = setting(False, "the policy's actions live in [-1, 1] and are scaled to the bounds")

    method: str = setting("geo", "update rule of the policy", one_of(*METHODS))
    solver: str = setting("kfac", "how the policy's natural gradient is solved for", SOLVERS)
    alpha: float = setting(0.0, "connection: 0 Levi-Civita (the paper), 1 exponential, -1 mixture", within(-1, 1))
    connection: str = setting("joint", "of a normal policy's mean and deviation: joint, or by blocks", CONNECTIONS)
    calibrate: bool = setting(True, "scale the correction to its least-squares length; false is the published form")
    learning_rate: float = setting(0.3, "longest step h of the policy", POSITIVE)
    target_kl: float = setting(0.003, "largest KL divergence of one update of the policy", POSITIVE)
    trust_region: str = setting(
        "predicted", "the KL of target_kl: predicted by the exact metric, actual, or by the solver's own", TRUST_REGIONS
    )
    anneal: bool = setting(True, "steps shorten over the run, in proportion to what is left of it")
    damping: float = setting(0.01, "added to the diagonal of the policy's Fisher matrix", at_least(0))
    gradient_averaging: float = setting(0.9, "decay of the average of gradients over updates", AVERAGING)
    cautious: bool = setting(True, "hold steps to what fresh batches confirm and earlier batches would see of them")
    curvature_every: int = setting(
        4, "the policy's curvature is measured on every such step of a large batch, its gradient on all", at_least(1)
    )
    cg_iterations: int = setting(10, "iterations of pcg and cg", up_to(10_000))
    factor_averaging: float = setting(
        0.95, "decay of the average of K-FAC factors over updates, the policy's and the critic's", AVERAGING
    )
    factored_damping: bool = setting(True, "damping is split over K-FAC factors; false: added to their product, less")
    factors_every: int = setting(1, "updates between two measurements of the policy's K-FAC factors", at_least(1))
    ent_coef: float = setting(0.0, "weight of the entropy bonus", at_least(0))
    normalize_advantage: bool = setting(True, "advantages of a batch with mean 0 and variance 1")
    advantage_floor: float = setting(0.1, "advantages are divided by no less than this", at_least(0))
    hidden: tuple[int, ...] = setting((64, 64), "sizes of the policy's hidden layers", SIZES)
    activation: str = setting("tanh", "activation of the policy's hidden layers", ACTIVATIONS)
    log_std_init: float = setting(-0.7, "log standard deviation of actions at the start", within(-20, 20))
    ortho_init: bool = setting(True, "orthogonal weights at the start")
    unit_rows: bool = setting(False, "rows of weights of length 1 at the start, 0.1 in the policy's last layer")

    critic_updates: int = setting(1, "updates of the critic per batch", up_to(10_000))
    critic_learning_rate: float = setting(1.0, "longest step h of the critic", POSITIVE)
    critic_solver: str = setting("pcg", "how the critic's natural gradient is solved for", SOLVERS)
    critic_cg_iterations: int = setting(6, "iterations of the critic's pcg and cg", up_to(10_000))
    critic_curvature_every: int = setting(
        1, "the critic's curvature is measured on every such step of a large batch, its gradient on all", at_least(1)
    )
    critic_damping: float = setting(0.03, "added to the diagonal of the critic's Fisher matrix", at_least(0))
    critic_target_kl: float = setting(
        0.0, "half the largest mean squared change of values in one update; 0: any", at_least(0)
    )
    critic_gradient_averaging: float = setting(0.0, "decay of the average of the critic's gradients", AVERAGING)
    critic_lambda: float = setting(0.95, "lambda of the critic's targets; 1 is Monte-Carlo", within(0, 1))
    critic_hidden: tuple[int, ...] = setting((64, 64), "sizes of the critic's hidden layers", SIZES)
    critic_activation: str = setting("tanh", "activation of the critic's hidden layers", ACTIVATIONS)
    critic_extras: bool = setting(False, "the critic also sees the policy's normal distribution and the time step")
    limits_terminate: bool = setting(False, "time limits are taken for terminations, which they are not")

    steps: int = setting(1_000_000, "environment steps of the run, over all environments", up_to(10**12 - 1))
    eval_every: int = setting(100_000, "environment steps between evaluations", at_least(1))
    eval_episodes: int = setting(10, "episodes of one evaluation", up_to(1000))
    torch_threads: int = setting(1, "threads of torch; another number may change the last bits", up_to(1024))
    env_threads: int = setting(
        0, "threads of the environments, 0 for one per core; changes no result", up_to(1024, low=0)
    )

    def __post_init__(self) -> None:
        for key in FIELDS:
            object.__setattr__(self, key, checked(key, getattr(self, key)))


FIELDS: Mapping[str, Field[Any]] = {f.name: f for f in fields(Settings)}


def legal_words(key: str) -> str:
    """Say which values a key takes, such as 'an integer of at least 1'."""
    return f"{KINDS[FIELDS[key].type].words} {FIELDS[key].metadata['legal'].words}".strip()


def help_of(key: str) -> str:
    """Explain a key in one line; if its value is a name, with the legal names."""
    choices = f": {legal_words(key)}" if FIELDS[key].type is str else ""
    return f"{FIELDS[key].metadata['help']}{choices}"


def checked(key: str, value: Any) -> Any:
    """Return a value in the form it is stored in: 1 as 1.0 where a float is due, a list as a tuple; refuse others."""
    kind = KINDS[FIELDS[key].type]
    if not kind.holds(value) or not FIELDS[key].metadata["legal"].test(value):
        raise Refused(f"{key} must be {legal_words(key)}, not {value!r}")
    return kind.form(value)


def parsed(key: str, text: str) -> Any:
    """Read the value of a key from text, by the key's type; refuse what is not of it."""
    try:
        value = KINDS[FIELDS[key].type].parse(text)
    except ValueError:
        raise Refused(f"{key} must be {legal_words(key)}, not {text!r}") from None
    return checked(key, value)
