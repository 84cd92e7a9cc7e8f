"""Which curves are drawn where."""

from pathlib import Path

from synthetic_studies import HIGH, LOW, write_group

from geonpg.scripts.reports.curves import over_steps
from geonpg.scripts.reports.reading import read_study


def test_only_what_was_run_on_every_task_is_shown_for_all_of_them(tmp_path: Path) -> None:
    for env_id in ("Hopper-v4", "Walker2d-v4"):
        write_group(tmp_path / env_id / "default/geo", HIGH)
    write_group(tmp_path / "Hopper-v4/default/ng", LOW)
    study = read_study(tmp_path)
    panels = over_steps(study, study.contenders, lambda run: run.training, with_level=True)
    shown = {panel.title: [line.contender.method for line in panel.lines] for panel in panels}
    assert shown == {"All tasks (IQM)": ["geo"], "Hopper-v4": ["geo", "ng"], "Walker2d-v4": ["geo"]}
