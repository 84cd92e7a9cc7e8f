"""Entries of races with returns that a test chose, as `geonpg race` leaves them."""

from collections.abc import Mapping
from pathlib import Path

from geonpg.scripts.races.course import Entry
from geonpg.scripts.races.rows import Row, begin, write_rows


def write_entry(root: Path, entry: Entry, returns: Mapping[float, float], machine: str = "a machine, 2 cores") -> Path:
    """An entry with these returns after minutes, and a thousand steps a minute."""
    folder = root / entry.name
    facts = {"env": entry.env_id, "contestant": entry.contestant, "seed": entry.seed, "minutes": entry.minutes}
    begin(folder, {**facts, "config": {}, "machine": machine})
    rows = [Row(minute, 60 * minute + 0.5, round(1000 * minute), mean, 1.0, 20) for minute, mean in returns.items()]
    write_rows(folder, rows)
    return folder


def write_races(root: Path) -> None:
    """Five minutes on two tasks, ours with two seeds; ten minutes on one; and an entry that was interrupted."""
    ours = {"HalfCheetah-v4": (2000.0, 4000.0), "Hopper-v4": (500.0, 3500.0)}
    for env_id, (early, late) in ours.items():
        for seed in (0, 1):
            shifted = {1.0: early + 200 * seed, 2.0: late - 100, 5.0: late + 200 * seed}
            write_entry(root, Entry(env_id, "geonpg", seed, 5.0), shifted)
        write_entry(root, Entry(env_id, "sac", 0, 5.0), {1.0: 100.0, 2.0: 1500.0, 5.0: 3900.0})
    write_entry(root, Entry("HalfCheetah-v4", "sac", 0, 10.0), {1.0: 0.0, 2.0: 1000.0, 5.0: 4000.0, 10.0: 8000.0})
    write_entry(root, Entry("HalfCheetah-v4", "tqc", 0, 5.0), {1.0: 9999.0})
