"""How commands end that run what is missing and report on all."""

import os
import signal
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import pytest

from geonpg.errors import Refused
from geonpg.scripts.common.artifacts import Table
from geonpg.scripts.common.stopping import Signals
from geonpg.scripts.jobs.concluding import conclude

TABLES = [Table("few", "A few", ("task",), [["Hopper-v4"]], "A note.")]


def arguments(only_report: bool = False, json: bool = False) -> Namespace:
    return Namespace(only_report=only_report, json=json)


def report() -> tuple[list[Table], dict[str, float]]:
    return TABLES, {"few": 1.0}


def nothing_fails(signals: Signals) -> Mapping[str, str]:
    return {}


def test_tables_or_numbers_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert conclude("geonpg some", arguments(), nothing_fails, report) == 0
    assert "Hopper-v4" in capsys.readouterr().out
    assert conclude("geonpg some", arguments(json=True), nothing_fails, report) == 0
    assert capsys.readouterr().out == '{"few": 1.0}\n'


def test_what_failed_is_named_after_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert conclude("geonpg some", arguments(), lambda _: {"Hopper-v4/0": "no memory"}, report) == 1
    printed = capsys.readouterr()
    assert "Hopper-v4/0 failed: no memory" in printed.err
    assert "Hopper-v4" in printed.out


def test_a_report_alone_runs_nothing() -> None:
    def never(signals: Signals) -> Mapping[str, str]:
        raise AssertionError

    assert conclude("geonpg some", arguments(only_report=True), never, report) == 0


def test_a_stop_leaves_the_report_out_and_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    def stopped(signals: Signals) -> Mapping[str, str]:
        os.kill(os.getpid(), signal.SIGTERM)
        return {}

    assert conclude("geonpg some", arguments(), stopped, report) == 128 + signal.SIGTERM
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "stopped: the same command continues\n")


@pytest.mark.parametrize("error", [Refused("no such task"), FileNotFoundError(2, "No such file", Path("here"))])
def test_refusals_are_one_sentence(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(signals: Signals) -> Mapping[str, str]:
        raise error

    assert conclude("geonpg some", arguments(), refused, report) == 2
    assert capsys.readouterr().err.startswith("geonpg some: ")
