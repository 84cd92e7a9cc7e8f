"""What `geonpg compare` does with a run that has ended."""

from pathlib import Path

import pytest
from short_runs import ended_run

from geonpg.scripts.common.locks import AtWork, locked
from geonpg.scripts.jobs import comparing
from geonpg.scripts.runs.folder import is_done


def test_A1_a_run_that_had_ended_before_keeps_its_models(tmp_path: Path) -> None:
    """What is dropped of the others is counted."""
    ended, other = tmp_path / "ended", tmp_path / "other"
    for folder in (ended, other):
        folder.mkdir()
    (ended / "final.ckpt").write_text("mine")
    concluding = comparing.Concluding(compacting=True)
    ends = [concluding.after(folder) for folder in (ended, other)]
    for folder, end in zip((ended, other), ends, strict=True):
        (folder / "evaluations.csv").write_text("steps,mean,std,returns\n512,7.5,0.5,7.0 8.0\n")
        (folder / "final.ckpt").write_text("mine")
        end()
    assert (ended / "final.ckpt").exists()
    assert not (other / "final.ckpt").exists()
    assert concluding.dropped == 1


def test_A3_compare_leaves_a_run_to_the_process_that_goes_on_with_it(tmp_path: Path) -> None:
    """It has ended and would be compacted, but somebody was quicker."""
    folder, concluding = ended_run(tmp_path / "run"), comparing.Concluding(compacting=True)
    before = sorted(folder.rglob("*"))
    with locked(folder), pytest.raises(AtWork):
        concluding.conclude(folder, compacting=True)
    assert sorted(folder.rglob("*")) == before
    concluding.conclude(folder, compacting=True)
    assert is_done(folder)
    assert concluding.dropped == 1
