"""The pages: their code runs, their commands are legal, and what they name is there."""

import csv
import re
import tomllib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from doc_pages import DOCS, PAGES, README, ROOT, anchors, blocks, commands, inline, links, name_of, prose, rows, section
from own_robots import EXAMPLES as OWN_ROBOTS
from own_robots import robots
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from geonpg.configs import FIELDS, spelled
from geonpg.scripts import cli
from geonpg.scripts.common.parser import Parser

TRAINING = ROOT / "docs/training.md"
ROBOTS = ROOT / "docs/robots.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLDERS = ("agents", "configs", "envs", "kfac", "package", "scripts")
HISTORY = ROOT / "CHANGELOG.md"  # names what was there once
SHORTER = {"50_000": "2048", "100_000": "2048"}  # numbers of steps in examples
TINY = ["--steps=1024", "--n-envs=4", "--set=n_steps=64", "--set=eval_episodes=1"]

pages = pytest.mark.parametrize("page", PAGES, ids=name_of)
current_pages = pytest.mark.parametrize("page", [page for page in PAGES if page != HISTORY], ids=name_of)


# Examples


EXAMPLES = {
    f"{page.stem}-{i}": code
    for page in DOCS
    for i, code in enumerate(blocks(page, "python"))
    if page not in (TRAINING, ROBOTS)
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they stand, but for fewer steps."""
    monkeypatch.chdir(tmp_path)
    code = EXAMPLES[name]
    for steps, fewer in SHORTER.items():
        code = code.replace(steps, fewer)
    for folder in re.findall(r'load\("(runs/.*?)"\)', code):
        assert cli.main(["train", "--env=Walker2d-v4", "--folder", folder, *TINY]) == 0
    exec(compile(code, name, "exec"), {"__name__": "__main__"})
    for error in re.findall(r"squared error (?:per case )?([\d.]+)", capsys.readouterr().out):
        assert float(error) < 0.1


def test_an_environment_of_ones_own_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = blocks(TRAINING, "python")
    (command,) = (words for words in commands(TRAINING) if "mymodule:MyEnv-v0" in words and "train" in words)
    (tmp_path / "mymodule.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert command[:4] == ["python", "-m", "geonpg", "train"]
    assert cli.main([*command[3:], *TINY]) == 0
    assert list((tmp_path / "runs").glob("mymodule:MyEnv-v0*/final.ckpt"))


def test_a_robot_of_ones_own_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page shows the files in docs/examples; its commands and its example run, but for fewer steps."""
    (model,), (task, example) = blocks(ROBOTS, "xml"), blocks(ROBOTS, "python")
    assert model == (OWN_ROBOTS / "balancer.xml").read_text()
    assert task == (OWN_ROBOTS / "balancer.py").read_text()
    train, evaluate = commands(ROBOTS)
    assert train[:4] == ["python", "-m", "geonpg", "train"]
    assert evaluate[:4] == ["python", "-m", "geonpg", "evaluate"]
    monkeypatch.chdir(tmp_path)
    with robots(monkeypatch):
        assert cli.main([*train[3:], *TINY, "--folder", evaluate[4]]) == 0
        assert cli.main(evaluate[3 : evaluate.index("--video")]) == 0
        for steps, fewer in SHORTER.items():
            example = example.replace(steps, fewer)
        exec(compile(example, "robots", "exec"), {"__name__": "__main__"})


# Commands


class Legal(Exception):
    """Raised by a parser that has accepted its arguments, before the command does anything."""


def check(command: str, arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command parse its arguments."""
    module = import_module(f"geonpg.scripts.{command}")
    if hasattr(module, "parse"):
        module.parse(list(arguments))
        return
    parse = Parser.parse_args

    def parse_only(self: Parser, *given: object, **named: object) -> None:
        parse(self, *given, **named)
        raise Legal

    monkeypatch.setattr(Parser, "parse_args", parse_only)
    with pytest.raises(Legal):
        module.main(list(arguments))


def command_of(words: Sequence[str]) -> list[str]:
    """A command of ours and its arguments, by whatever it is called."""
    for i, word in enumerate(words):
        if called := re.fullmatch(r"geonpg|(?:geonpg\.scripts\.|scripts/)(\w+?)(?:\.py)?", word):
            return [*filter(None, [called[1]]), *words[i + 1 :]]
    raise AssertionError(f"no command of ours: {words}")


COMMANDS = sorted({tuple(words) for page in PAGES if page != HISTORY for words in commands(page)})


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_commands_are_legal(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is named without arguments must exist."""
    monkeypatch.chdir(ROOT)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M)
    elif words[0] == "pip":
        for extra in re.findall(r"\[(.*?)\]", " ".join(words)):
            assert extra in PROJECT["optional-dependencies"]
    else:
        command, *arguments = command_of(words) or ["train"]
        assert command in {*cli.COMMANDS, "rl_zoo"}
        if arguments:
            check(command, ["1" if word == "N" else word for word in arguments], monkeypatch)


def test_every_command_has_a_line_in_the_readme_and_a_page() -> None:
    listed = {row[0].removeprefix("geonpg "): row[2] for row in rows(section(README, "Commands"))}
    assert {*cli.COMMANDS} <= {*listed}
    assert all(re.search(r"\]\(docs/\w+\.md", page) for page in listed.values())


# What pages name


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"no {link}"
        assert not anchor or anchor in anchors(target), f"no heading for {link}"


@current_pages
def test_paths_in_backticks_exist(page: Path) -> None:
    tops = "agents|configs|docs|envs|kfac|package|results|scripts|tests"
    for text in inline(page):
        for path in re.findall(rf"(?<![\w./])(?:{tops})/[\w./*-]*", text):
            placeholder = re.search(r"\b[A-Z]{2,}\b", path)
            assert placeholder or list(ROOT.glob(path.rstrip("/."))), f"no {path}"


@current_pages
def test_tests_classes_and_members_in_backticks_exist(page: Path) -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    source = "\n".join(path.read_text() for top in FOLDERS for path in (ROOT / top).rglob("*.py"))
    for text in inline(page):
        if re.fullmatch(r"test_\w+", text):
            assert f"def {text}(" in tests, f"no {text}"
        if member := re.fullmatch(r"([A-Z]\w*[a-z]\w*)\.(\w+)", text):
            assert re.search(rf"^class {member[1]}\b", source, re.M), f"no class {member[1]}"
            assert re.search(rf"\b{member[2]}\b", source), f"no {text}"


def test_the_layout_in_the_readme_is_that_on_disk() -> None:
    for line in blocks(README)[-1].splitlines():
        for folder, rest in re.findall(r"(\w+)/  (.*?)(?=  \w+/|$)", line):
            assert (ROOT / folder).is_dir(), f"no {folder}"
            for name in re.findall(r"[\w*]+\.(?:py|toml)|\b\w+/", rest):
                assert list((ROOT / folder).glob(name.rstrip("/"))), f"no {name} in {folder}"


def test_the_file_to_read_first_is_as_short_as_it_says() -> None:
    lines = len((ROOT / "kfac/rules.py").read_text().splitlines())
    claims = [int(number) for page in PAGES for number in re.findall(r"the paper in\s(\d+)\slines", page.read_text())]
    assert claims
    assert all(abs(lines - claim) <= 10 for claim in claims)


def test_the_site_shows_every_page() -> None:
    shown = re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2])
    pages = [str(page.relative_to(ROOT / "docs")) for page in DOCS] + ["CHANGELOG.md", "CONTRIBUTING.md"]
    assert sorted(shown) == sorted(pages)


def referred(page: Path) -> list[str]:
    """What a page of the reference shows: modules, or names in them."""
    return re.findall(r"^::: (\S+)", page.read_text(), re.M)


def test_the_reference_names_what_there_is() -> None:
    for page in (ROOT / "docs/api").glob("*.md"):
        for name in referred(page):
            parent, _, last = name.rpartition(".")
            assert hasattr(import_module(parent), last), f"no {name}"


@pytest.mark.parametrize("package", ["agents", "configs", "envs", "kfac"])
def test_the_reference_has_whatever_a_package_exports(package: str) -> None:
    shown = referred(ROOT / f"docs/api/{package}.md")
    exported = import_module(f"geonpg.{package}")
    modules = [vars(exported)[name] for name in (each.rpartition(".")[2] for each in shown) if name in vars(exported)]
    for name in exported.__all__:
        in_module = any(isinstance(each, ModuleType) and hasattr(each, name) for each in modules)
        assert in_module or f"geonpg.{package}.{name}" in shown, f"no {name}"


def test_the_version_is_the_same_everywhere() -> None:
    version = PROJECT["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", HISTORY.read_text(), re.M)


def test_british_spelling() -> None:
    """A few words that betray the other one, outside of code."""
    american = r"\b(?:optimiz|normaliz|behavior|color|parametriz|parameteriz|initializ|center)\w*"
    for page in PAGES:
        text = re.sub(r"`[^`\n]*`|\[[^\]]*\]\([^)]*\)", "", prose(page))
        assert not re.findall(american, text), page.name


def test_the_settings_to_change_first_have_the_defaults_that_it_says() -> None:
    for keys, defaults, _ in rows(section(TRAINING, "How to choose")):
        values = [spelled(FIELDS[key].default) for key in keys.split(", ")]
        assert defaults in (", ".join(values), values[0])


# The glossary


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert cli.main(["train", "--env=InvertedPendulum-v4", "--folder", str(folder), *TINY]) == 0
    return folder


def test_the_glossary_explains_every_key_on_tensorboard(run: Path) -> None:
    board = EventAccumulator(str(run))
    board.Reload()
    logged = {re.sub(r"^(geometry/condition)_.*", r"\1_*", key) for key in board.Tags()["scalars"]}
    explained = [row[0] for row in rows(section(TRAINING, "TensorBoard"))]
    assert len(set(explained)) == len(explained)
    assert logged == set(explained)


@pytest.mark.parametrize("table", ["curve.csv", "evaluations.csv", "times.csv"])
def test_the_glossary_explains_every_column(run: Path, table: str) -> None:
    with (run / table).open() as file:
        assert next(csv.reader(file)) == [row[0] for row in rows(section(TRAINING, table))]
