"""Synthetic studies on disk: what `geonpg compare` leaves, with returns that a test chose."""

import json
import math
from pathlib import Path

from geonpg.scripts.runs.folder import CURVE, EVALUATIONS, TIMES, CurveRow, Evaluation, Times

ROWS = 10  # of a table
LOW, HIGH = [1000.0, 1100, 1200, 1300, 1400], [2700.0, 2800, 2900, 3000, 3100]  # of five seeds
MIXED = [1000.0, 1150, 1200, 1250, 1400]  # not to be told from LOW


def write_run(folder: Path, final: float, steps: int = 1_000_000, preset: str | None = None) -> Path:
    """A run that rises from a tenth of its final return. The folder says what it is, unless a preset is given."""
    env_id, family, variant, seed = folder.parts[-4:]
    is_ours = variant in ("ng", "mid", "geo", "geof")
    folder.mkdir(parents=True)
    config = f"steps = {steps}\n" + (f'method = "{variant}"\n' if is_ours else f'algorithm = "{family}"\n')
    (folder / "config.toml").write_text(config)
    (folder / "run.json").write_text(json.dumps({"env": env_id, "seed": int(seed), "preset": preset or family}))
    at = [steps * k // ROWS for k in range(1, ROWS + 1)]
    heights = [final * (1 - 0.9 * math.exp(-5 * k / ROWS)) for k in range(1, ROWS)] + [final]
    returns = [math.nan, *heights[1:]]  # no training episode has ended before the first row
    episodes = [10] * (ROWS - 1) + [20]
    CURVE.write(folder, [CurveRow(s, r, 100.0, *[0.0] * 5) for s, r in zip(at, returns, strict=True)])
    rows = zip(at, heights, episodes, strict=True)
    EVALUATIONS.write(folder, [Evaluation(s, height, 1.0, [1.0] * count) for s, height, count in rows])
    TIMES.write(folder, [Times(s, s / 1000, *[0.0] * 5) for s in at])
    return folder


def write_group(folder: Path, finals: list[float], steps: int = 1_000_000, preset: str | None = None) -> None:
    """One run for each final return."""
    for seed, final in enumerate(finals):
        write_run(folder / str(seed), final, steps, preset)


def write_study(folder: Path) -> Path:
    """Two tasks: geo is better than ng, mid is not; an ablation is worse, and two runs cannot be read."""
    for env_id in ("Hopper-v4", "Walker2d-v4"):
        write_group(folder / env_id / "default/ng", LOW)
        write_group(folder / env_id / "default/geo", HIGH)
        write_group(folder / env_id / "default/mid", MIXED)
        write_group(folder / env_id / "ppo/zoo", LOW[:3])
    write_group(folder / "Hopper-v4/paper/ng", HIGH)
    write_group(folder / "Hopper-v4/paper/geo", LOW)
    write_group(folder / "Hopper-v4/no-averaging/geo", LOW, steps=500_000, preset="default")
    (write_run(folder / "Hopper-v4/default/geo/7", 1.0) / "times.csv").unlink()
    (write_run(folder / "Hopper-v4/default/geo/8", 1.0) / "run.json").write_text("{")
    return folder
