"""Grids: what they say, and what is refused in a sentence."""

from pathlib import Path

import pytest
from tiny_maps import TINY_GRID

from geonpg.errors import Refused
from geonpg.scripts.maps.grid import read_grid

ROOT = Path(__file__).resolve().parents[3]


def grid_with(tmp_path: Path, old: str, new: str) -> Path:
    assert old in TINY_GRID
    path = tmp_path / "grid.toml"
    path.write_text(TINY_GRID.replace(old, new))
    return path


def test_a_damping_is_one_for_all_or_one_for_each_batch_or_kl(tmp_path: Path) -> None:
    grid = read_grid(grid_with(tmp_path, "held_out = 256", "held_out = 256\ncurvature = 256"))
    assert grid.variants["pcg/geo"].damping == ((1.0, 1.0), (0.1, 0.3))
    assert grid.variants["kfac/ng"].damping == ((0.1, 0.1), (0.1, 0.1))
    assert grid.sides == {"256/0.1": ("pcg/geo", "kfac/ng")}
    assert [grid.every(batch) for batch in (64, 256, 257, 1024)] == [1, 1, 2, 4]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("batches =", "batchs =", "unknown key 'batchs' .did you mean batches"),
        ("seeds = [3000]\n", "", "a grid must have seeds"),
        ("kls = [0.03, 0.1]", "kls = [0.03, -1]", "kls must be a list of numbers above 0"),
        ("held_out = 256", "held_out = 0", "held_out must be a whole number above 0, not 0"),
        ('"256/0.1" =', '"512/0.1" =', "unknown place of sides '512/0.1'"),
        ('["pcg/geo", "kfac/ng"]', '["pcg/geo", "kfac/mid"]', "unknown variant 'kfac/mid'"),
        ('["pcg/geo", "kfac/ng"]', '["pcg/geo"]', "sides at 256/0.1 must be two names"),
        ('["pcg/geo", "kfac/ng"]', '["kfac/ng", "pcg/geo"]', "must be a variant of geo and one of ng"),
        ("checkpoints = [1, 2]", "checkpoints = [2, 1]", "checkpoints must increase"),
        ("checkpoints = [1, 2]", "checkpoints = [1, 1]", "checkpoints must not name anything twice"),
        ("seeds = [3000]", "seeds = [-1]", "seeds must be a list of whole numbers from 0 to"),
        ('preset = "default"', "preset = 3", "preset must be a preset's name, not 3"),
        ("held_out = 256", "held_out = 256\ncurvature = 0", "curvature must be at least 256, not 0"),
        ("damping = 0.1}", 'rate = "x"}', "rate of variant kfac/ng must be a number above 0, not 'x'"),
        ("damping = 0.1}", 'calibrate = "no"}', "calibrate of variant kfac/ng must be true or false, not 'no'"),
        ("damping = 0.1}", "alpha = 2}", "alpha of variant kfac/ng must be a number in .-1, 1., not 2"),
        ("damping = 0.1}", 'connection = "x"}', "connection of variant kfac/ng must be one of joint, blocks"),
        ('rule = "ng"', 'rule = "gn"', "unknown rule 'gn'"),
        ('solver = "kfac"', 'solver = "lu"', "unknown solver 'lu'"),
        ("damping = [1.0, [0.1, 0.3]]", "damping = [1.0, 0.1, 3.0]", "one number, one for each batch, or"),
        ("damping = [1.0, [0.1, 0.3]]", "damping = [1.0, [0.1]]", "or one for each batch and KL"),
        ("damping = 0.1}", "damping = -0.1}", "one number, one for each batch, or"),
        ("damping = 0.1}", "dampin = 0.1}", "unknown key of variant kfac/ng 'dampin'"),
        ("damping = 0.1}", "substeps = 0}", "substeps of variant kfac/ng must be a whole number above 0"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(Refused, match=words):
        read_grid(grid_with(tmp_path, old, new))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot read grid"):
        read_grid(tmp_path / "none.toml")


@pytest.mark.parametrize(
    "path", [ROOT / "results" / name for name in ("large-explore.toml", "large.toml")], ids=lambda path: path.stem
)
def test_the_grids_of_our_results_can_be_read(path: Path) -> None:
    assert read_grid(path).variants
