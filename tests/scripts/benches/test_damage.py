"""`geonpg bench damage`: every kind of damage and edit, few of each, and that it sees what goes wrong."""

import json
import random
from argparse import Namespace
from pathlib import Path

import pytest

from geonpg.scripts import bench
from geonpg.scripts.benches import damage as bench_damage
from geonpg.scripts.benches.damage import CONTENT, DamageFindings, Outcome, contents, damage


def test_it_damages_and_edits_and_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["damage", "--damages", "6", "--edits", "6", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["damage/lost"] == 0
    assert sum(results[f"damage/damages_{fate}"] for fate in ("continued", "refused")) == 6
    assert sum(results[f"damage/edits_{fate}"] for fate in ("continued", "refused")) == 6


def test_the_table_counts_by_kind() -> None:
    fine = [Outcome("damages", "continued", ""), Outcome("damages", "refused", ""), Outcome("edits", "refused", "")]
    lines = DamageFindings(fine).table().splitlines()
    assert lines[0] == "damages: 1 continued byte for byte, 1 were refused in a sentence"
    assert lines[-1] == "nothing lost, no other result"
    assert DamageFindings([*fine, Outcome("edits", "lost", "ValueError")]).failed


def test_what_goes_wrong_is_counted_and_ends_in_another_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A traceback, another result, and files that were changed although the run was refused."""
    mistakes = iter([ZeroDivisionError("a mistake"), "evaluations.csv", "curve.csv"])

    def resume(arguments: Namespace) -> int:
        if not arguments.resume:
            return train(arguments)
        mistake = next(mistakes)
        if isinstance(mistake, Exception):
            raise mistake
        code = train(arguments)
        (arguments.resume / mistake).write_text("other")
        return code

    train = bench_damage.train
    monkeypatch.setattr(bench_damage, "train", resume)
    monkeypatch.setattr(bench_damage, "damage", lambda folder, chance: ("nothing", []))
    assert bench.main(["damage", "--damages", "3", "--edits", "0"]) == 1
    out, err = capsys.readouterr()
    assert out.endswith("3 were LOST, or had another result\n")
    assert "case 0, nothing: ZeroDivisionError" in err
    assert "case 1, nothing: evaluations.csv differ: another result" in err


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
