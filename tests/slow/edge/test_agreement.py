"""The requests of tests/integration/edge/test_agreement.py, and many more of them."""

from __future__ import annotations

import os
import subprocess
import sys

from devtools.processes import ROOT


def test_the_edge_and_the_origin_judge_alike() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "tests/integration/edge/test_agreement.py"],
        cwd=ROOT,
        env={**os.environ, "TEST_EDGE_CASES": "20000"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
