"""An analysis that finds the ratios that are there."""

from pathlib import Path

import pytest
from tiny_maps import TINY_GRID, write_grid, write_synthetic

from geonpg.scripts.maps.analysis import ALL, Place, best_of, judged, map_numbers, map_tables, read_map
from geonpg.scripts.maps.trunk import GRID


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_grid(tmp_path)


def test_a_ratio_is_found_by_pairs_and_tasks_count_alike(folder: Path) -> None:
    """Checkpoints differ by a factor of four, the variants by a quarter or by three quarters."""
    text = TINY_GRID.replace('["Reacher-v4"]', '["Reacher-v4", "Hopper-v4"]')
    (folder / GRID).write_text(text.replace("[3000]", "[3000, 3001, 3002, 3003, 3004]"))
    for seed in range(3000, 3005):
        noise = 1 + 0.01 * (seed % 3)
        write_synthetic(folder, "Reacher-v4", seed, {"pcg/geo": 1.25 * noise, "kfac/ng": 1.0}, 2)
        write_synthetic(folder, "Hopper-v4", seed, {"pcg/geo": 0.0175, "kfac/ng": 0.01}, 2)
    study, place = read_map(folder), Place(256, 0.1)
    estimate, word = judged(study, "Reacher-v4", place)
    assert 1.24 < float(estimate.low) < float(estimate.value) < float(estimate.high) < 1.29
    assert word == "better"
    pooled, _ = judged(study, ALL, place)
    assert float(pooled.value) == pytest.approx((float(estimate.value) * 1.75) ** 0.5)
    numbers = map_numbers(study)
    assert numbers["large/all/256/0.1/geo_over_ng/low"] == pytest.approx(float(pooled.low))
    assert numbers["large/Hopper-v4/64/0.03/kfac/ng/held_out"] == pytest.approx(0.01 * (4 * 1.01 + 1.02) / 2)
    assert "large/all/64/0.1/geo_over_ng" not in numbers  # no sides were chosen there
    verdicts = next(table for table in map_tables(study) if table.name == "geo-over-ng")
    assert [row[:3] for row in verdicts.rows] == [[where, 256, "0.1"] for where in (ALL, "Reacher-v4", "Hopper-v4")]


def test_the_ratio_of_two_that_are_alike_is_not_significant(folder: Path) -> None:
    (folder / GRID).write_text(TINY_GRID.replace("[3000]", "[3000, 3001, 3002, 3003, 3004]"))
    for seed, factor in zip(range(3000, 3005), (0.9, 1.1, 1.02, 0.97, 1.0), strict=True):
        write_synthetic(folder, "Reacher-v4", seed, {"pcg/geo": factor, "kfac/ng": 1.0}, 2)
    assert judged(read_map(folder), ALL, Place(256, 0.1))[1] == "not significant"


def test_no_ratio_is_made_where_there_is_no_gain(folder: Path) -> None:
    (folder / GRID).write_text(TINY_GRID.replace("[3000]", "[3000, 3001, 3002, 3003, 3004]"))
    for seed in range(3000, 3005):
        write_synthetic(folder, "Reacher-v4", seed, {"pcg/geo": 1.0, "kfac/ng": seed - 3000.5}, 2)
    study = read_map(folder)
    assert judged(study, ALL, Place(256, 0.1))[1] == "not known"
    assert not [key for key in map_numbers(study) if "geo_over_ng" in key]


def test_few_trunks_give_no_verdict_and_incomplete_checkpoints_do_not_count(folder: Path) -> None:
    (folder / GRID).write_text(TINY_GRID.replace("[3000]", "[3000, 3001]"))
    write_synthetic(folder, "Reacher-v4", 3000, {"pcg/geo": 1.25, "kfac/ng": 1.0}, 2)
    write_synthetic(folder, "Reacher-v4", 3001, {"kfac/ng": 1.0}, 2)
    study = read_map(folder)
    assert study.count("Reacher-v4") == "2 of 1 trunks"
    assert judged(study, ALL, Place(256, 0.1))[1] == "too few trunks"


def test_an_exploring_map_says_what_to_choose(folder: Path) -> None:
    (folder / GRID).write_text(TINY_GRID.replace('"256/0.1" =', '# "256/0.1" ='))
    write_synthetic(folder, "Reacher-v4", 3000, {"pcg/geo": 1.25, "kfac/ng": -1.0}, 2)
    study = read_map(folder)
    assert best_of(study, "geo", Place(64, 0.03)) == "pcg/geo"
    assert map_tables(study)[0].name == "best"


def test_a_folder_without_a_map(tmp_path: Path) -> None:
    assert not read_map(tmp_path)
    assert map_numbers(read_map(tmp_path)) == {}
