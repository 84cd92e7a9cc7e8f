"""`geonpg bench damage`: every kind of damage and edit, few of each, and that it sees what goes wrong."""

import json
import random
from pathlib import Path

import pytest
import torch

from geonpg.scripts import bench
from geonpg.scripts.benches import damage as bench_damage
from geonpg.scripts.benches.damage import CONTENT, contents, damage
from geonpg.scripts.benches.edits import edited
from geonpg.scripts.runs import training


def test_it_damages_and_edits_and_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["damage", "--damages", "6", "--edits", "6", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["damage/lost"] == 0
    assert sum(results[f"damage/damages_{fate}"] for fate in ("continued", "refused")) == 6
    assert sum(results[f"damage/edits_{fate}"] for fate in ("continued", "refused")) == 6
    assert bench_damage.table(results).endswith("nothing lost, no other result")


def test_what_goes_wrong_is_counted_and_ends_in_another_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A traceback, another result, and files that were changed although the run was refused."""
    mistakes = iter([ZeroDivisionError("a mistake"), "evaluations.csv", "curve.csv"])

    def resume(arguments: list[str]) -> int:
        if "--resume" not in arguments:
            return train(arguments)
        mistake = next(mistakes)
        if isinstance(mistake, Exception):
            raise mistake
        code = train(arguments)
        (Path(arguments[1]) / mistake).write_text("other")
        return code

    train = bench_damage.train.main
    monkeypatch.setattr(bench_damage.train, "main", resume)
    monkeypatch.setattr(bench_damage, "damage", lambda folder, chance: ("nothing", []))
    assert bench.main(["damage", "--damages", "3", "--edits", "0"]) == 1
    out, err = capsys.readouterr()
    assert out.endswith("3 were LOST, or had another result\n")
    assert "case 0, nothing: ZeroDivisionError" in err
    assert "case 1, nothing: evaluations.csv differ: another result" in err
    assert training.failed  # what was called is the command itself


def test_every_kind_of_damage_does_some(tmp_path: Path) -> None:
    chance, kinds = random.Random(0), set()
    for number in range(60):
        folder = tmp_path / str(number)
        (folder / "checkpoints").mkdir(parents=True)
        for name in ("run.json", "curve.csv", "checkpoints/a.ckpt"):
            (folder / name).write_bytes(chance.randbytes(50))
        before = contents(folder)
        what, touched = damage(folder, chance)
        kinds.add(what.split()[0])
        changed = {path for path in before if contents(folder).get(path) != before[path]}
        assert changed >= set(touched) or what.startswith("zero")
    assert kinds == {*(change.__name__ for change in CONTENT), "remove", "swap"}


def test_every_edit_changes_a_copy() -> None:
    state = {"a": {"b": 1, "c": [1.5, "x"]}, "d": torch.ones(2, 3), "e": (torch.zeros(2),), "f": None}
    chance = random.Random(0)
    told = set()
    for _ in range(300):
        new, what = edited(state, chance)
        told.add(what.split()[0])
        assert repr(new) != repr(state)
    assert told == {"removes", "renames", "adds", "makes"}
    assert repr(state) == repr({**state})
