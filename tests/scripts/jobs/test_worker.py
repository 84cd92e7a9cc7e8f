"""A script in a process that ends when whoever started it does."""

import signal
import subprocess
import sys

SLEEPS = """
import sys, time, types
from geonpg.scripts.jobs import worker
sys.modules["geonpg.scripts.sleeps"] = types.SimpleNamespace(main=lambda arguments: time.sleep(60) or 0)
sys.argv[1:] = ["sleeps"]
print("ready", flush=True)
worker.main()
"""


def test_it_runs_a_script() -> None:
    command = [sys.executable, "-m", "geonpg.scripts.jobs.worker", "configs"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "paper" in process.stdout.read()
        assert process.wait() == 0


def test_a_closed_input_asks_it_to_stop() -> None:
    command = [sys.executable, "-c", SLEEPS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(timeout=30) == -signal.SIGTERM
