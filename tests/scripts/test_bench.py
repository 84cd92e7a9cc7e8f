"""The command `geonpg bench`: what it prints, its exit codes, its options; each benchmark has a test of its own."""

import json
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import pytest
from matplotlib.figure import Figure

from geonpg.scripts import bench
from geonpg.scripts.benches.findings import DrawnFindings, Findings, Numbers


@dataclass(frozen=True)
class Counted(DrawnFindings):
    """Findings of a benchmark that measures nothing."""

    count: int

    @property
    def failed(self) -> bool:
        return self.count < 0

    def numbers(self) -> Numbers:
        return {"counted": {"inside": {"count": self.count}, "half": self.count / 2}}

    def table(self) -> str:
        return f"counted to {self.count}"

    def figure(self) -> Figure:
        figure = Figure(figsize=(1, 1))
        figure.subplots().plot([0, self.count])
        return figure


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark of this name, with an option."""
    monkeypatch.setitem(bench.BENCHES, "counts-up", "a benchmark for tests")
    monkeypatch.setattr(bench, "DRAWN", (*bench.DRAWN, "counts-up"))
    monkeypatch.setattr(bench, "OPTIONS", {"kills": ("counts-up",)})
    module = SimpleNamespace(measure=lambda kills=-1: Counted(kills))
    monkeypatch.setitem(sys.modules, "geonpg.scripts.benches.counts_up", module)


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The answer to a wrong call."""
    with pytest.raises(SystemExit) as stopped:
        bench.main(list(arguments))
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_it_prints_a_table_or_flat_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["counts-up", "--kills", "3"]) == 0
    assert capsys.readouterr().out == "counted to 3\n"
    assert bench.main(["counts-up", "--kills", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"counted/inside/count": 3.0, "counted/half": 1.5}


def test_a_fault_is_exit_code_1() -> None:
    assert bench.main(["counts-up"]) == 1


def test_it_draws_what_can_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["counts-up", "--kills", "1", "--figure", str(tmp_path / "counts.png")]) == 0
    assert (tmp_path / "counts.png").stat().st_size > 0
    said = refusal(capsys, "update", "--figure", str(tmp_path / "update.png"))
    assert "--figure goes with scaling, counts-up, not with update" in said
    said = refusal(capsys, "counts-up", "--figure", str(tmp_path / "nowhere" / "counts.png"))
    assert "--figure must be in a folder that exists" in said
    said = refusal(capsys, "counts-up", "--figure", str(tmp_path / "counts.txt"))
    assert "--figure must end in .png or .svg" in said


def test_ctrl_c_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stop() -> Findings:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["geonpg.scripts.benches.counts_up"], "measure", stop)
    assert bench.main(["counts-up"]) == 130
    assert capsys.readouterr().err == "stopped: a benchmark keeps nothing\n"


def test_an_unknown_benchmark_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "speed")
    assert all(name in said for name in bench.BENCHES)


@pytest.mark.parametrize("name", sorted(bench.BENCHES))
def test_every_benchmark_is_a_module_that_returns_findings(name: str) -> None:
    module = import_module(f"geonpg.scripts.benches.{name.replace('-', '_')}")
    found = get_type_hints(module.measure)["return"]
    assert issubclass(found, Findings)
    assert issubclass(found, DrawnFindings) == (name in bench.DRAWN)


def test_options_go_with_their_benchmark(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.undo()
    for arguments, words in {
        "update --kills 3": "--kills goes with resume, not with update",
        "resume --edits 3": "--edits goes with damage, not with resume",
        "update --envs Ant-v4": "--envs goes with envs, train, not with update",
        "resume --kills 0": "argument --kills: must be from 1 to 1,000,000, not 0",
    }.items():
        assert words in refusal(capsys, *arguments.split())
