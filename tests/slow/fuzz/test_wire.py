"""The requests of tests/integration/fuzz/test_wire.py, and many more of them."""

from __future__ import annotations

import os
import subprocess
import sys

from devtools.processes import ROOT


def test_any_bytes_are_answered_or_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "tests/integration/fuzz/test_wire.py"],
        cwd=ROOT,
        env={**os.environ, "TEST_FUZZ_EXAMPLES": "1000"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
