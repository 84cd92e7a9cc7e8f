"""From a study file or flags to a list of jobs: the order, the settings, and what is wrong with them."""

import sys
from pathlib import Path

import pytest
from short_runs import forget, write_module

from geonpg.scripts.jobs.matrix import groups_from, jobs_of, read_groups, seeds_from

STUDY = """
description = "everything that a study can say"

[[group]]
algorithm = "ppo"
settings = "zoo"
envs = ["Hopper-v4"]
seeds = [1]
steps = 5000

[[group]]
methods = ["geo", "ng"]
envs = ["Hopper-v4", "Reacher-v4"]
seeds = [3, 0]
steps = 5000
eval_every = 1000

[[group]]
methods = ["geo"]
preset = "paper"
label = "small"
set = {hidden = [8], target_kl = 0.02}
envs = ["Hopper-v4"]
seeds = [0]
"""


def test_a_study_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    jobs = jobs_of(read_groups(path), {"env_threads": 1})
    assert [job.name for job in jobs] == [
        "Hopper-v4/ppo/zoo/1",
        *(
            f"{env}-v4/default/{method}/{seed}"
            for env in ("Hopper", "Reacher")
            for method in ("geo", "ng")
            for seed in (3, 0)
        ),
        "Hopper-v4/small/geo/0",
    ]
    assert {job.config["env_threads"] for job in jobs} == {1}
    assert [jobs[i].steps for i in (0, 1, -1)] == [5000, 5000, 1_000_000]
    assert jobs[1].config["eval_every"] == 1000
    small = jobs[-1].config
    assert (small["hidden"], small["target_kl"], small["n_envs"]) == ([8], 0.02, 10)  # the rest is the preset's


def test_A5_a_study_imports_no_module_that_was_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = write_module(tmp_path, monkeypatch)
    env = f"{module}:Walk-v0"
    groups = groups_from("geo", "", env, "0", 500, "default")
    with pytest.raises(ValueError, match=f"the study asks for the module '{module}', .* name it by --envs {env}"):
        jobs_of(groups, {})
    assert module not in sys.modules
    assert [job.name for job in jobs_of(groups, {}, [env])] == [f"{env}/default/geo/0"]
    forget(module)


def test_flags() -> None:
    groups = groups_from("geo,ng", "ppo,trpo:zoo", "Hopper-v4", "0-1,4", 5000, "paper")
    assert [job.name for job in jobs_of(groups, {})] == [
        *(f"Hopper-v4/paper/{method}/{seed}" for method in ("geo", "ng") for seed in (0, 1, 4)),
        *(f"Hopper-v4/{baseline}/{seed}" for baseline in ("ppo/default", "trpo/zoo") for seed in (0, 1, 4)),
    ]
    assert groups_from("", "a2c", "Hopper-v4", "7", None, "default") == [
        {"algorithm": "a2c", "settings": "default", "envs": ["Hopper-v4"], "seeds": [7]}
    ]
    assert seeds_from("0-4") == [0, 1, 2, 3, 4]


ENVS_SEEDS = 'envs = ["Hopper-v4"]\nseeds = [0]\n'
GEO = 'methods = ["geo"]\n' + ENVS_SEEDS
PPO = 'algorithm = "ppo"\n' + ENVS_SEEDS
WRONG = {
    GEO.replace("geo", "newton"): "group 1: method must be one of ng, mid, geo, geof, not 'newton'",
    GEO.replace("Hopper", "Hoper"): "unknown environment 'Hoper-v4' (did you mean Hopper-v4?): choose one of ",
    GEO.replace(
        "[0]", "[-1]"
    ): "group 1: seeds must be a list of integers from 0 to 4,294,967,295, such as [0, 1, 2], not [-1]",
    GEO.replace("[0]", "[]"): "group 1: seeds must be a list",
    GEO.replace("[0]", "[true]"): "group 1: seeds must be a list",
    'methods = "geo"\n' + ENVS_SEEDS: 'group 1: methods must be a list of names, such as ["a", "b"], not \'geo\'',
    ENVS_SEEDS: "group 1: methods must be a list of names",
    GEO + 'preset = "papr"\n': "group 1: unknown preset 'papr' (did you mean paper?): choose one of ",
    GEO + "preset = 3\n": "group 1: preset must be text, not 3",
    GEO + "steps = 0\n": "group 1: steps must be an integer from 1 to 999,999,999,999, not 0",
    GEO + "step = 5\n": "group 1: unknown key 'step' (did you mean steps?): choose one of methods, ",
    GEO + "set = {gamma = 0.9}\n": "group 1: a group with set needs a label: ",
    GEO + 'label = "x"\nset = {gama = 0.9}\n': "group 1: unknown key 'gama' (did you mean gamma?): choose one of ",
    GEO + 'label = "x"\nset = {steps = 9}\n': "group 1: set cannot hold steps: the group's own keys say that",
    GEO + 'label = "x"\nset = 3\n': "group 1: set must be a table such as {gamma = 0.98}, not 3",
    GEO + 'label = "ppo"\n': "group 1: 'ppo' is taken: give the group a label that is none of default, ",
    GEO + 'label = "default"\n': "group 1: 'default' is taken: ",
    GEO + 'label = "../x"\n': "group 1: label must be a name of letters, digits and . _ + -, not '../x'",
    PPO.replace("ppo", "sac9"): "group 1: unknown algorithm 'sac9': choose one of ppo, a2c, trpo",
    PPO + 'settings = "best"\n': "group 1: unknown settings 'best': choose one of default, zoo",
    PPO + 'preset = "paper"\n': "group 1: unknown key 'preset': choose one of algorithm, settings, envs, ",
    PPO.replace("Hopper", "Pusher") + 'settings = "zoo"\n': "group 1: unknown task of rl-zoo3's ppo 'Pusher': choose ",
    f"{GEO}[[group]]\n{GEO}steps = 5": "two groups make Hopper-v4/default/geo/0, and differ in steps (1000000 and 5): ",
}


@pytest.mark.parametrize("group", WRONG)
def test_what_is_wrong_is_one_sentence(group: str, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text("[[group]]\n" + group)
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - compared below
        jobs_of(read_groups(path), {})
    assert str(raised.value).startswith(WRONG[group])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "a study has tables [[group]]"),
        ("group = 3", "a study has tables [[group]]"),
        ("group = []", "a study has tables [[group]]"),
        ("[[groups]]", "unknown key 'groups' (did you mean group?): choose one of description, group"),
        ("[[group", ""),
    ],
)
def test_a_file_that_is_no_study(content: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(content)
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - compared below
        read_groups(path)
    assert str(raised.value).startswith(f"{path}: {sentence}")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read study .*: No such file or directory"):
        read_groups(tmp_path / "study.toml")
    (tmp_path / "study.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"cannot read study .*: it is not UTF-8 text"):
        read_groups(tmp_path / "study.toml")


@pytest.mark.parametrize("seeds", ["", "a", "1-", "-3", "0,,2", "1.5"])
def test_seeds_that_are_none(seeds: str) -> None:
    with pytest.raises(ValueError, match="seeds are given as 0-4 or 0,2,5, not "):
        seeds_from(seeds)


def test_C12_a_byte_order_mark_is_no_part_of_a_study(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(f"[[group]]\n{GEO}", encoding="utf-8-sig")
    assert [job.name for job in jobs_of(read_groups(tmp_path / "study.toml"), {})] == ["Hopper-v4/default/geo/0"]


def test_C13_a_study_counts_in_powers_of_ten(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(f"[[group]]\n{GEO}steps = 1e5\n[[group]]\n{PPO}steps = 1e5\n")
    jobs = jobs_of(read_groups(tmp_path / "study.toml"), {})
    assert [job.config["steps"] for job in jobs] == [100_000, 100_000]
    assert all(isinstance(job.config["steps"], int) for job in jobs)


@pytest.mark.parametrize("seeds", ["0-99999999999", "0-1000", "5000000000", "4-0", "0-99999999999999999999"])
def test_B6_absurd_seeds_are_one_sentence(seeds: str) -> None:
    with pytest.raises(ValueError, match="seeds") as refused:
        seeds_from(seeds)
    assert str(refused.value).isprintable()
    assert seeds_from("0-999") == list(range(1000))
