"""What a map says: mean gains on held-out steps, and the best of one side over the best of the other, by pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geonpg.scripts.branches.rows import rows_path
from geonpg.scripts.common.artifacts import Cell, Table, aligned, number
from geonpg.scripts.common.intervals import Array, Estimate, Needed, pooled_student, verdict
from geonpg.scripts.maps.grid import OURS, THEIRS, Grid, place_name, read_grid
from geonpg.scripts.maps.rows import Row, read_rows
from geonpg.scripts.maps.trunk import GRID

ALL = "all"
TRUNKS = Needed(5, "trunks")  # per task: checkpoints of one trunk are alike
LEAST = 1e-6  # gain, where logarithms are taken to choose the best
OFF = 0.1  # by which part a KL may miss its target before a table says so


@dataclass(frozen=True)
class Place:
    """Where on the map: a batch and a size of step."""

    batch: int
    kl: float

    def __str__(self) -> str:
        return place_name(self.batch, self.kl)


Rows = Mapping[str, Mapping[Place, Mapping[str, Mapping[int, Sequence[Row]]]]]


@dataclass(frozen=True)
class MapStudy:
    """The rows of a map by task, place, variant and trunk; checkpoints stand in the same order for every variant."""

    grid: Grid
    rows: Rows

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def places(self) -> list[Place]:
        """Every place, batch by batch."""
        return [Place(batch, kl) for batch in self.grid.batches for kl in self.grid.kls]

    def values(self, env_id: str, place: Place, variant: str, measure: str = "held_out") -> Array:
        """One measure as the mean over the checkpoints of each trunk of a task: [trunks]."""
        trunks = self.rows[env_id][place][variant].values()
        return np.array([np.mean([getattr(row, measure) for row in rows]) for rows in trunks])

    def count(self, env_id: str) -> str:
        """How many checkpoints of how many trunks of a task there are."""
        trunks = next(iter(next(iter(self.rows[env_id].values())).values()))
        return f"{sum(map(len, trunks.values()))} of {len(trunks)} trunks"


NO_MAP = MapStudy(Grid("", (), (), (), (), (), 0, {}), {})


def read_map(folder: Path) -> MapStudy:
    """Read the checkpoints at which every variant was tried on every batch; no task without one."""
    if not (folder / GRID).exists():
        return NO_MAP
    grid = read_grid(folder / GRID)
    study: dict[str, dict[Place, dict[str, dict[int, list[Row]]]]] = {}
    for env_id in grid.envs:
        for seed in grid.seeds:
            for row in whole_checkpoints(grid, read_rows(rows_path(folder, env_id, seed))):
                variants = study.setdefault(env_id, {}).setdefault(Place(row.batch, row.kl), {})
                variants.setdefault(row.variant, {}).setdefault(seed, []).append(row)
    return MapStudy(grid, study)


def whole_checkpoints(grid: Grid, rows: Sequence[Row]) -> list[Row]:
    """The rows of those checkpoints of a trunk that are complete."""
    wanted = len(grid.variants) * len(grid.batches) * len(grid.kls)
    each = ([row for row in rows if row.checkpoint == number] for number in grid.checkpoints)
    return [row for found in each if len(found) == wanted for row in found]


# comparisons


def worth(study: MapStudy, variant: str, place: Place) -> float:
    """Mean over tasks of the logarithm of a variant's mean gain; a mean that is not above zero counts as next to none.

    So tasks count alike, whatever the size of their gains.
    """
    means = [float(study.values(env_id, place, variant).mean()) for env_id in study.rows]
    return float(np.mean(np.log(np.maximum(means, LEAST))))


def best_of(study: MapStudy, rule: str, place: Place) -> str:
    """The variant of a rule with the largest gain at a place, of single steps whose KL was searched for."""
    variants = study.grid.variants.items()
    own = [name for name, each in variants if (each.rule, each.substeps, each.search) == (rule, 1, True)]
    return max(own, key=lambda name: worth(study, name, place))


def ratio(study: MapStudy, place: Place, ours: str, theirs: str, tasks: Sequence[str]) -> Estimate:
    """Ratio of the gains of two variants, with Student's interval from the logarithms of each trunk's ratio.

    Over several tasks, the geometric mean of theirs. Not known if a variant gains nothing along some trunk.
    """
    gains = [(study.values(env_id, place, ours), study.values(env_id, place, theirs)) for env_id in tasks]
    if min(min(a.min(), b.min()) for a, b in gains) <= 0:
        return Estimate(*np.full(3, np.nan))
    found = pooled_student([np.log(a / b) for a, b in gains])
    return Estimate(np.exp(found.value), np.exp(found.low), np.exp(found.high))


def tasks_at(study: MapStudy, where: str) -> list[str]:
    """The tasks that a row of a table stands for."""
    return list(study.rows) if where == ALL else [where]


def wheres(study: MapStudy) -> list[str]:
    """All tasks together, and each of them."""
    return [ALL, *study.rows]


def judged(study: MapStudy, where: str, place: Place) -> tuple[Estimate, str]:
    """The `geo` that was chosen beforehand over the `ng` that was, and the verdict."""
    tasks = tasks_at(study, where)
    estimate = ratio(study, place, *study.grid.sides[str(place)], tasks)
    fewest = min(len(study.values(env_id, place, study.grid.sides[str(place)][0])) for env_id in tasks)
    return estimate, verdict(estimate, fewest, TRUNKS, neutral=1.0)


def places_of_sides(study: MapStudy) -> list[Place]:
    """The places at which variants were chosen beforehand."""
    return [place for place in study.places if str(place) in study.grid.sides]


# tables and numbers


def map_tables(study: MapStudy) -> list[Table]:
    """Verdicts or what to choose first, then the gains of every variant, then what explains them."""
    first = verdict_table(study) if places_of_sides(study) else best_table(study)
    return [first, *(gain_table(study, batch) for batch in study.grid.batches), instruments_table(study)]


def verdict_table(study: MapStudy) -> Table:
    """The chosen `geo` over the chosen `ng` at every place, on all tasks and on each."""
    rows: list[list[Cell]] = []
    for where in wheres(study):
        for place in places_of_sides(study):
            estimate, word = judged(study, where, place)
            value, low, high = aligned(float(estimate.value), float(estimate.low), float(estimate.high))
            sides = study.grid.sides[str(place)]
            rows.append([where, place.batch, f"{place.kl:g}", *sides, word, value, f"{low} to {high}"])
    columns = ("task", "batch", "KL", OURS, THEIRS, "verdict", "ratio", "95 % interval")
    return Table("geo-over-ng", "Held-out gain: the best geo over the best ng", columns, rows)


def best_table(study: MapStudy) -> Table:
    """The best variant of each rule at every place, for a map that confirms it on other seeds."""
    rules = sorted({each.rule for each in study.grid.variants.values() if each.substeps == 1})
    rows: list[list[Cell]] = []
    for place in study.places:
        best = [best_of(study, rule, place) for rule in rules]
        gains = [f"{name} ({1e3 * np.exp(worth(study, name, place)):.2f})" for name in best]
        rows.append([place.batch, f"{place.kl:g}", *gains])
    title = "The best of each rule, with its held-out gain x 1000 (geometric mean over tasks)"
    return Table("best", title, ("batch", "KL", *rules), rows, "Chosen and measured on the same data: no verdict.")


def gain_table(study: MapStudy, batch: int) -> Table:
    """Mean held-out gains of every variant from one batch."""
    places = [Place(batch, kl) for kl in study.grid.kls]
    rows: list[list[Cell]] = [
        [env_id, name, *(gain_cell(study, env_id, place, name) for place in places)]
        for env_id in study.rows
        for name in study.grid.variants
    ]
    counts = ", ".join(f"{env_id} {study.count(env_id)}" for env_id in study.rows)
    columns = ("task", "variant", *(f"KL {place.kl:g}" for place in places))
    title = f"Held-out gain x 1000, batches of {batch} (checkpoints: {counts})"
    note = "In brackets: the mean KL of the steps, where it is not the one that was aimed at."
    return Table(f"gain-{batch}", title, columns, rows, note)


def gain_cell(study: MapStudy, env_id: str, place: Place, name: str) -> str:
    """The mean gain of a variant at a place, with its KL if that is another."""
    gain, reached = (float(study.values(env_id, place, name, what).mean()) for what in ("held_out", "actual_kl"))
    return f"{1e3 * gain:.2f}" + ("" if abs(reached / place.kl - 1) < OFF else f" ({reached:.2g})")


def instruments_table(study: MapStudy) -> Table:
    """What explains the gains, over all tasks: KL, length of the search, entropy, time."""
    rows: list[list[Cell]] = []
    for place in study.places:
        for name in study.grid.variants:
            actual, predicted, own, promised, tries, entropy, spent = (
                float(np.mean([study.values(env_id, place, name, measure).mean() for env_id in study.rows]))
                for measure in ("actual_kl", "predicted_kl", "own", "promised", "tries", "entropy", "milliseconds")
            )
            known = [(actual, predicted), (own, promised)]  # not for substeps and clipped minibatches
            ratios = [number(a / b) if b > 0 else "" for a, b in known]
            counts = [number(tries), number(entropy), f"{spent:.0f}"]
            rows.append([place.batch, f"{place.kl:g}", name, *ratios, *counts])
    columns = ("batch", "KL", "variant", "actual / predicted KL", "own / promised gain", "tries", "entropy", "ms")
    return Table("instruments", "What explains the gains: means over all tasks", columns, rows)


def map_numbers(study: MapStudy) -> dict[str, float]:
    """Every mean gain as large/<task>/<batch>/<kl>/<variant>/held_out, and the known ratios with their ends."""
    numbers: dict[str, float] = {}
    for env_id in study.rows:
        for place in study.places:
            for name in study.grid.variants:
                gain = float(study.values(env_id, place, name).mean())
                numbers[f"large/{env_id}/{place}/{name}/held_out"] = gain
    for where in wheres(study) if study else []:
        for place in places_of_sides(study):
            found = judged(study, where, place)[0]
            if np.isfinite(found.value):
                numbers |= found.numbers(f"large/{where}/{place}/{OURS}_over_{THEIRS}")
    return numbers
