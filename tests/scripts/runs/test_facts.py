"""What a run.json says, right or wrong."""

import json
import logging
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from geonpg.agents.checkpoint import write
from geonpg.scripts.runs.facts import Facts, create, facts_of, processor, versions, warn_of_best, warn_of_changes
from geonpg.scripts.runs.folder import Evaluation

GOOD = {"env": "Hopper-v4", "seed": 3, "preset": "default", "device": "cpu", "versions": {"torch": "2"}, "git": ""}


def written(folder: Path, content: Any) -> Path:
    (folder / "run.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert facts_of(written(tmp_path, GOOD)) == Facts("Hopper-v4", 3, "default", "cpu", {"torch": "2"})
    assert facts_of(written(tmp_path, {"env": "Hopper-v4", "seed": 3})) == Facts("Hopper-v4", 3)


WRONG: dict[str, tuple[Any, str]] = {
    "seed text": ({**GOOD, "seed": "0"}, "seed must be an integer of at least 0, not '0'"),
    "seed flag": ({**GOOD, "seed": True}, "seed must be an integer of at least 0, not True"),
    "seed negative": ({**GOOD, "seed": -1}, "seed must be an integer of at least 0, not -1"),
    "seed none": ({"env": "Hopper-v4"}, "it has no seed"),
    "env number": ({**GOOD, "env": 5}, "env must be a name, not 5"),
    "env list": ({**GOOD, "env": ["Hopper-v4"]}, "env must be a name, not ['Hopper-v4']"),
    "preset none": ({**GOOD, "preset": None}, "preset must be a name, not None"),
    "device none": ({**GOOD, "device": None}, "device must be one of cpu, cuda, not None"),
    "device list": ({**GOOD, "device": ["cpu"]}, "device must be one of cpu, cuda, not ['cpu']"),
    "versions text": ({**GOOD, "versions": "1"}, "versions must be names and versions, not '1'"),
    "versions numbers": ({**GOOD, "versions": {"torch": 2}}, "versions must be names and versions"),
    "processor number": ({**GOOD, "processor": 7}, "processor must be a name, not 7"),
    "list": ([GOOD], "it must hold a JSON object"),
    "number": ("3", "it must hold a JSON object"),
    "deep": ("[" * 100_000, "is no run folder: "),
    "nothing": ("", "is no run folder: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_B4_a_wrong_type_is_one_sentence(name: str, tmp_path: Path) -> None:
    content, words = WRONG[name]
    with pytest.raises(ValueError, match=r"run.json is damaged: |is no run folder: ") as refused:
        facts_of(written(tmp_path, content))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_best_model_that_is_not_there_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, anew = tmp_path / "best.ckpt", "the next better evaluation writes it anew"
    best = Evaluation(200, 3.0, 0.0, [])
    with caplog.at_level(logging.WARNING):
        warn_of_best(tmp_path, None, 50)
        for steps in (200, 400):  # the latter of an evaluation that is made again
            write(path, {"steps": steps})
            warn_of_best(tmp_path, best, 300)
        assert caplog.messages == []
        write(path, {"steps": 300})
        warn_of_best(tmp_path, best, 300)
        path.unlink()
        warn_of_best(tmp_path, best, 300)
    assert caplog.messages == [
        f"{path} is not the best model so far: {anew}",
        f"{path} does not exist: {anew}",
    ]


def test_A8_other_versions_and_a_missing_card_are_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_changes(Facts("Hopper-v4", 0, versions=versions()))
        assert caplog.messages == []
        warn_of_changes(Facts("Hopper-v4", 0, versions={**versions(), "torch": "0.1"}, device="cuda"))
    changed, card = caplog.messages
    assert changed == (f"this run was begun with torch 0.1, now {versions()['torch']}: it may not go on bit for bit")
    assert card == "this run was begun on cuda, which is not here: it goes on on the cpu, and not bit for bit"


def test_the_processor_is_recorded(tmp_path: Path) -> None:
    create(tmp_path / "run", "", {"env": "Hopper-v4", "seed": 0})
    assert facts_of(tmp_path / "run").processor == processor() != ""


def test_processors_of_one_name_and_several_kinds_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """As clouds have them; some machines list no family."""
    monkeypatch.setattr(sys, "platform", "linux")
    shown = "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel\t\t: 9\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: shown)
    assert processor() == "AMD EPYC (family 26, model 2)"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "processor\t: 0\nmodel name\t: a slow one\n")
    assert processor() == "a slow one"
    arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: arm)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert processor() == "aarch64 (implementer 0x41, part 0xd4f)"


def test_where_the_processor_is_hidden_there_is_another_name_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(*_: object, **__: object) -> str:
        raise PermissionError("hidden")

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(Path, "read_text", hidden)
    assert processor() != ""


def test_another_processor_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """The same libraries choose other instructions there, and sum in another order."""
    with caplog.at_level(logging.WARNING):
        warn_of_changes(Facts("Hopper-v4", 0, versions=versions(), processor=processor()))
        assert caplog.messages == []
        warn_of_changes(Facts("Hopper-v4", 0, versions=versions(), processor="an abacus"))
    assert caplog.messages == [
        f"this run was begun with an abacus, now {processor()}: it may not go on bit for bit",
    ]
