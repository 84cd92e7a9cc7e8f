"""Programs that must run in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def drawn(program: str, *arguments: str | Path) -> bool:
    """Run a program that draws pictures, with whichever of OpenGL's backends is here."""
    for backend in ("egl", "osmesa"):
        command = [sys.executable, "-c", program, *map(str, arguments)]
        result = subprocess.run(command, env=os.environ | {"MUJOCO_GL": backend}, capture_output=True, text=True)
        if result.returncode == 0:
            return True
    if not any(Path("/usr/lib").rglob("libEGL.so*")):
        pytest.skip("no EGL or OSMesa library on this machine")
    raise AssertionError(result.stderr)
