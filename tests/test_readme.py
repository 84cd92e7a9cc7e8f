"""The README's code runs, and does what the text beside it says."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


AGENT, OPTIMISER, ENVIRONMENTS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


def test_the_example_trains() -> None:
    result = subprocess.run([sys.executable, "-c", OPTIMISER], capture_output=True, text=True, check=True)
    last = result.stdout.splitlines()[-1]
    accuracy = re.search(r"epoch 4: .*accuracy ([\d.]+)", last)
    assert accuracy is not None
    assert float(accuracy[1]) > 0.95


def test_the_agent_learns(tmp_path: Path) -> None:
    """As it stands, but for fewer steps."""
    assert "learn(50_000)" in AGENT
    shorter = AGENT.replace("50_000", "2048")
    command = [sys.executable, "-c", shorter]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert re.fullmatch(r"\d+ \+- \d+", result.stdout.splitlines()[-1])
    assert (tmp_path / "pendulum.zip").exists()


def test_C17_the_agent_says_how_far_it_is() -> None:
    """Its first table comes after a fifth of the steps."""
    assert "verbose=1" in AGENT


def test_the_environments_train_ppo() -> None:
    """As it stands, but for fewer steps."""
    assert "learn(100_000)" in ENVIRONMENTS
    shorter = ENVIRONMENTS.replace("100_000", "2048")
    subprocess.run([sys.executable, "-c", shorter], capture_output=True, text=True, check=True)


def test_every_file_it_names_exists() -> None:
    for text in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\((?!http)([^)#]+)\)", text.read_text()):
            assert (text.parent / link).exists(), f"{text.name} links to {link}"
