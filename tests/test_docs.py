"""The code in docs/optimizer.md runs, and trains."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_hessian_free_example_trains() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "optimizer.md").read_text(), re.S)
    result = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True)
    error = re.search(r"squared error per case ([\d.]+)", result.stdout)
    assert error is not None
    assert float(error[1]) < 0.5
