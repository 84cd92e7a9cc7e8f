"""What a job is: its name, its order, and what its folder says about it."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from short_runs import ended_run

from geonpg.configs import Settings, to_toml
from geonpg.scripts import train
from geonpg.scripts.jobs import job as jobs
from geonpg.scripts.jobs.job import Job, baseline_job, our_job
from geonpg.scripts.runs import baseline as baselines
from geonpg.scripts.runs import training
from geonpg.scripts.runs.folder import compact, config_difference, finish, is_done

OVERRIDES = {"method": "ng", "hidden": (8, 4), "calibrate": False, "gamma": 0.9, "steps": 500, "env_threads": 1}


def ours(seed: int = 2, label: str | None = "small", **other: Any) -> Job:
    return our_job("Hopper-v4", "paper", label, seed, {**OVERRIDES, **other})


def theirs(**budget: int) -> Job:
    return baseline_job("Hopper-v4", "ppo", "zoo", 1, {"steps": 500, "eval_every": 100, **budget})


def test_a_name_is_a_folder() -> None:
    assert ours().name == "Hopper-v4/small/ng/2"
    assert ours(label=None).name == "Hopper-v4/paper/ng/2"
    assert theirs().name == "Hopper-v4/ppo/zoo/1"
    assert baseline_job("ALE/Pong-v5", "a2c", "default", 0, {}).name == "ALE-Pong-v5/a2c/default/0"


def test_an_order_begins_a_run_with_the_jobs_own_settings(tmp_path: Path) -> None:
    """As the scripts themselves understand it."""
    job = ours()
    program, *arguments = job.order(tmp_path / "new")
    understood = train.parse(arguments)
    plan = training.plan_from(understood)
    assert (program, understood.folder, plan.seed) == ("train", tmp_path / "new", 2)
    assert plan.settings == Settings(**job.config)
    assert not config_difference(job.config, tomllib.loads(plan.config))
    job = theirs()
    program, *arguments = job.order(tmp_path / "new")
    understood = baselines.parse(arguments)
    assert (program, understood.folder, understood.seed) == ("runs.baseline", tmp_path / "new", 1)
    assert baselines.plan_from(understood).values == job.config


def test_an_order_goes_on_with_what_has_begun(tmp_path: Path) -> None:
    assert ours().order(tmp_path) == ["train", "--resume", str(tmp_path)]
    assert theirs().order(tmp_path) == ["runs.baseline", "--resume", str(tmp_path)]
    named = replace(ours(), env_id="module:Walk-v0")  # to import a module, a run folder's word is not enough
    assert named.order(tmp_path) == ["train", "--env", "module:Walk-v0", "--resume", str(tmp_path)]


def test_equal_jobs_are_one_and_different_ones_are_refused() -> None:
    found = jobs.unique([ours(1), ours(0), ours(1, env_threads=4)])  # threads change no result
    assert [job.seed for job in found] == [1, 0]
    with pytest.raises(
        ValueError, match=r"two groups make Hopper-v4/small/ng/2, and differ in gamma \(0.9 and 0.8\): "
    ):
        jobs.unique([ours(), ours(gamma=0.8)])


def test_a_folder_must_hold_the_jobs_run(tmp_path: Path) -> None:
    job, folder = ours(), tmp_path / "run"
    jobs.check_recorded(job, folder)  # nothing there
    folder.mkdir()
    with pytest.raises(ValueError, match=r"run is no run folder: .*config.toml"):
        jobs.check_recorded(job, folder)
    config = to_toml(Settings(**{**job.config, "env_threads": 7}))
    (folder / "config.toml").write_text('description = "x"\n' + config)
    jobs.check_recorded(job, folder)
    (folder / "config.toml").write_text(config.replace("gamma = 0.9\n", "gamma = 0.95\n"))
    with pytest.raises(ValueError, match=r"run was made with other settings, gamma \(0.95 and 0.9\): move it away, "):
        jobs.check_recorded(job, folder)


def test_a_setting_that_a_folder_did_not_know_has_its_default(tmp_path: Path) -> None:
    """Old results stay valid when the schema grows, unless the new key is used."""
    old = to_toml(Settings(**ours().config)).replace("alpha = 0.0\n", "")
    assert "alpha" not in old
    (tmp_path / "config.toml").write_text(old)
    jobs.check_recorded(ours(), tmp_path)
    with pytest.raises(ValueError, match=r"alpha \(0.0 and 1.0\)"):
        jobs.check_recorded(ours(alpha=1.0), tmp_path)


def test_C5_a_run_that_is_done_has_evaluations(tmp_path: Path) -> None:
    """Where its state is there, they are made again; otherwise it is said how to get them back."""
    job, folder = ours(), ended_run(tmp_path / "run")
    (folder / "config.toml").write_text(to_toml(Settings(**job.config)))
    finish(folder)
    jobs.check_recorded(job, folder)
    (folder / "evaluations.csv").unlink()
    jobs.check_recorded(job, folder)
    assert not is_done(folder)
    compact(folder)
    cure = "put it back, or remove the folder to make the run again"
    with pytest.raises(ValueError, match=f"run has ended, but its evaluations.csv is missing or empty: {cure}"):
        jobs.check_recorded(job, folder)
