"""More requests from the OpenAPI document: all of its paths, and every boundary of a value."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from devtools.processes import ROOT


def test_answers_are_as_described() -> None:
    tests = Path(__file__).with_name("operations.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", str(tests)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
