"""Intervals against enumeration, scipy and rliable."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

from geonpg.scripts.common.intervals import (
    Estimate,
    Needed,
    Statistic,
    bootstrap,
    estimated,
    improvement,
    interquartile_mean,
    mean,
    mean_height,
    pooled_student,
    steps_to,
    student,
    verdict,
    welch,
    with_interval,
)

Array = NDArray[np.float64]


def draws(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def iqm(x: Array, axis: int | None = None) -> Any:
    return scipy.stats.trim_mean(x, 0.25, axis=axis)


def wins(x: Array, y: Array, axis: int) -> Any:
    return np.mean(x[..., :, None] > y[..., None, :], axis=(-2, -1))


def test_interval_is_that_of_all_resamples() -> None:
    """Of five runs there are 3125 resamples, which can be enumerated."""
    scores = draws(5)
    everything = np.array([scores[list(chosen)].mean() for chosen in product(range(5), repeat=5)])
    found = bootstrap(mean, [scores])
    assert found.value == pytest.approx(scores.mean())
    for end, share in ((found.low, 0.025), (found.high, 0.975)):
        # many resamples are equal, so that an end stands for a range of shares; sampling moves them by 0.002
        assert (everything < end - 1e-9).mean() <= share + 0.005
        assert (everything <= end + 1e-9).mean() >= share - 0.005


@pytest.mark.parametrize(
    ("statistic", "theirs", "groups"),
    [
        (mean, lambda x, axis: np.mean(x, axis=axis), [draws(8)]),
        (interquartile_mean, iqm, [draws(11)]),
        (improvement, wins, [draws(15) + 0.5, draws(20, seed=1)]),
    ],
    ids=["mean", "iqm", "improvement"],
)
def test_interval_is_scipy_s(statistic: Statistic, theirs: Callable[..., Any], groups: list[Array]) -> None:
    scipys = scipy.stats.bootstrap(groups, theirs, method="percentile", n_resamples=10_000, rng=1)
    close_to(bootstrap(statistic, groups), scipys.confidence_interval, scipys.standard_error)


def test_improvement_is_mann_and_whitney_s() -> None:
    x, y = draws(6) + 0.5, draws(7, seed=1)
    statistic = scipy.stats.mannwhitneyu(x, y).statistic
    assert improvement([x[None], y[None]])[0] == pytest.approx(statistic / (len(x) * len(y)))


def close_to(found: Estimate, theirs: Any, scale: float) -> None:
    """Within what two sets of resamples differ by."""
    assert found.low == pytest.approx(theirs.low, abs=0.15 * scale)
    assert found.high == pytest.approx(theirs.high, abs=0.15 * scale)
    assert found.high - found.low > scale


def test_intervals_are_rliable_s() -> None:
    """A development test: `pip install rliable "pandas<3"`, which brings much that nothing else here needs."""
    library = pytest.importorskip("rliable.library")
    metrics = pytest.importorskip("rliable.metrics")
    x, y = draws(5, 6) + np.arange(6) + 0.4, draws(7, 6, seed=1) + np.arange(6)  # rliable's form: runs x tasks
    values, intervals = library.get_interval_estimates(
        {"x": x},
        lambda scores: np.array([metrics.aggregate_iqm(scores)]),
        reps=4_000,
        random_state=np.random.RandomState(0),
    )
    found = bootstrap(interquartile_mean, list(x.T))
    assert found.value == pytest.approx(values["x"][0])
    assert [float(found.low), float(found.high)] == pytest.approx(intervals["x"][:, 0], abs=0.03)
    pairs = {"x,y": (x, y)}
    values, intervals = library.get_interval_estimates(
        pairs, metrics.probability_of_improvement, reps=1_000, random_state=np.random.RandomState(0)
    )
    found = bootstrap(improvement, [*x.T, *y.T])
    assert found.value == pytest.approx(values["x,y"])
    assert [float(found.low), float(found.high)] == pytest.approx(np.ravel(intervals["x,y"]), abs=0.03)


def test_tasks_are_strata() -> None:
    """Between tasks there is no chance: where runs agree, there is no interval, however far tasks are apart."""
    found = bootstrap(interquartile_mean, [np.full(5, 1.0), np.full(5, 100.0)])
    assert found.low == found.value == found.high


def test_a_task_with_more_runs_weighs_no_more_in_improvement() -> None:
    best, worst = np.full(30, 1.0), np.full(3, -1.0)
    zero = np.zeros(4)
    assert improvement([g[None] for g in (best, worst, zero, zero)]) == pytest.approx(0.5)


def test_ties_are_half() -> None:
    assert bootstrap(improvement, [np.ones(5), np.ones(5)]).value == 0.5


@pytest.mark.parametrize("runs", range(1, 13))
def test_interquartile_mean_is_the_trimmed_mean(runs: int) -> None:
    scores = draws(runs)
    assert interquartile_mean([scores[None]])[0] == pytest.approx(iqm(scores))


def test_a_curve_is_many_numbers() -> None:
    curves = draws(6, 9)
    along = bootstrap(mean, [curves])
    at_4 = bootstrap(mean, [curves[:, 4]])
    assert [along.value[4], along.low[4], along.high[4]] == pytest.approx([at_4.value, at_4.low, at_4.high])


def test_intervals_cover() -> None:
    """Of twenty runs, the interval of the mean holds the truth about 19 times in 20, if a bit less."""
    estimates = [bootstrap(mean, [draws(20, seed=seed)], count=400) for seed in range(300)]
    covered = np.mean([e.low <= 0 <= e.high for e in estimates])
    assert 0.88 <= covered <= 0.98


def test_one_task_of_five_runs_is_judged_rightly() -> None:
    """Where nothing differs, one verdict in twenty; and the interval of a mean holds the truth as often."""
    runs = np.random.default_rng(0).normal(size=(2000, 2, 5)) * [[1.0], [3.0]]
    differences = [welch(*pair) for pair in runs]
    assert 0.03 <= np.mean([verdict(e, 5) != "not significant" for e in differences]) <= 0.07
    means = [student(pair[0]) for pair in runs]
    assert 0.93 <= np.mean([e.low <= 0 <= e.high for e in means]) <= 0.97


def test_intervals_of_one_task_are_scipy_s() -> None:
    x, y = draws(5) + 1, draws(7, seed=1)
    theirs = scipy.stats.ttest_ind(x, y, equal_var=False).confidence_interval()
    found = welch(x, y)
    assert [found.value, found.low, found.high] == pytest.approx([x.mean() - y.mean(), *theirs])
    found = student(x)
    assert [found.low, found.high] == pytest.approx(scipy.stats.ttest_1samp(x, 0).confidence_interval())


def test_a_single_run_or_no_spread() -> None:
    assert student(np.array([3.0])) == Estimate(np.float64(3), np.float64(-np.inf), np.float64(np.inf))
    assert np.isinf(welch(np.array([3.0]), draws(5)).high)
    found = welch(np.full(5, 3.0), np.full(5, 1.0))
    assert found.low == found.value == found.high == 2


@pytest.mark.filterwarnings("error")
def test_solved_by_every_seed_is_no_reason_for_warnings() -> None:
    solved, x = np.full(3, 1000.0), draws(3)
    found, alone = welch(solved, x), student(x)
    assert found.high - found.low == pytest.approx(alone.high - alone.low)


def test_the_same_data_give_the_same_bits() -> None:
    scores = draws(5)
    assert bootstrap(mean, [scores]) == bootstrap(mean, [scores])


@pytest.mark.parametrize(
    ("low", "high", "seeds", "word"),
    [
        (0.51, 0.9, 5, "better"),
        (0.1, 0.49, 5, "worse"),
        (0.4, 0.6, 5, "not significant"),
        (0.5, 0.9, 5, "not significant"),
        (0.9, 1.0, 4, "too few seeds"),
    ],
)
def test_verdict(low: float, high: float, seeds: int, word: str) -> None:
    assert verdict(Estimate(np.array((low + high) / 2), np.array(low), np.array(high)), seeds, neutral=0.5) == word


@pytest.mark.parametrize(
    ("ends", "good", "word"),
    [
        ((1, 2), 1, "better"),
        ((1, 2), -1, "worse"),
        ((1, 2), 0, "higher"),
        ((-2, -1), 1, "worse"),
        ((-2, -1), -1, "better"),
        ((-2, -1), 0, "lower"),
        ((-1, 1), 0, "not significant"),
        ((np.nan, np.nan), 1, "not known"),  # all updates of a rule may have been rejected at a checkpoint
        ((1, np.inf), 1, "not known"),
    ],
)
def test_verdict_by_what_is_good_news(ends: tuple[float, float], good: int, word: str) -> None:
    low, high = map(np.array, ends)
    assert verdict(Estimate(low, low, high), 50, Needed(50, "checkpoints"), good=good) == word
    assert verdict(Estimate(low, low, high), 49, Needed(50, "checkpoints"), good=good) == "too few checkpoints"


def test_steps_to_a_level() -> None:
    steps, returns = np.array([10.0, 20, 30, 40]), np.array([0.0, 5, 3, 9])
    assert steps_to(4, steps, returns) == 20
    assert steps_to(5, steps, returns) == 20
    assert steps_to(6, steps, returns) == 40
    assert steps_to(10, steps, returns) == np.inf


def test_mean_height() -> None:
    steps = np.array([2.0, 4, 12])
    assert mean_height(steps, np.full(3, 7.0), 10) == pytest.approx(7)
    assert mean_height(np.array([0.0, 10]), np.array([0.0, 10]), 10) == pytest.approx(5)
    # 1 up to step 2, from there to 3 at step 4, then level
    assert mean_height(steps, np.array([1.0, 3, 3]), 8) == pytest.approx((2 * 1 + 2 * 2 + 4 * 3) / 8)


def test_pooled_intervals_are_students_for_one_group_and_satterthwaites_for_several() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(1, 0.2, 5), rng.normal(3, 2.0, 7)
    single, alone = pooled_student([one]), student(one)
    assert (single.value, single.low, single.high) == pytest.approx((alone.value, alone.low, alone.high))
    # of the difference a - b Welch's interval is known: that of the mean of a and -b is half as wide
    pair, welchs = pooled_student([one, -other]), welch(one, other)
    assert (2 * pair.value, 2 * pair.low, 2 * pair.high) == pytest.approx((welchs.value, welchs.low, welchs.high))
    assert pooled_student([one, other[:1]]).high == np.inf


def test_pooled_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    found = [pooled_student([rng.normal(0, s, 5) for s in (1, 2, 4)]) for _ in range(2000)]
    held = np.mean([each.low <= 0 <= each.high for each in found])
    assert 0.93 < held < 0.97


def test_an_interval_that_is_not_known_is_not_shown() -> None:
    value, inf = np.array(3.14159), np.array(np.inf)
    assert estimated(Estimate(value, -inf, inf)) == ["3.14", "not known"]
    assert with_interval(Estimate(value, -inf, inf)) == "3.14"
    assert with_interval(Estimate(value, value - 1, value + 100)) == "3 (2 to 103)"


def test_an_estimate_is_told_under_keys_with_its_ends_if_it_has_any() -> None:
    value, inf = np.array(3.0), np.array(np.inf)
    assert Estimate(value, value - 1, value + 2).numbers("key") == {"key": 3.0, "key/low": 2.0, "key/high": 5.0}
    assert Estimate(value, -inf, inf).numbers("key") == {"key": 3.0}
