"""Finds Node and runs JavaScript tests with vitest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from devtools.processes import ROOT

VITEST_SECONDS: Final = 1_200.0
"""A run of vitest that hangs is ended, and its output is reported."""


@dataclass(frozen=True, slots=True)
class VitestTest:
    name: str
    status: str
    messages: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.name, *(f"    {m}".replace("\n", "\n    ") for m in self.messages)])


def find_node() -> str:
    """The Node that `make setup` installed, or else the one of the machine."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    node = shutil.which("node", path=path)
    assert node is not None, "Node is missing; `make setup` installs it"
    return node


def run_vitest(root: Path, report: Path, env: Mapping[str, str]) -> list[VitestTest]:
    """Run the test files below `root`; returns the outcomes of the tests in order."""
    vitest = ROOT / "node_modules" / "vitest" / "vitest.mjs"
    assert vitest.exists(), "node_modules is missing; `make setup` installs it"
    process = subprocess.run(
        [find_node(), vitest, "run", "--root", root, "--reporter=json", f"--outputFile={report}"],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=VITEST_SECONDS,
    )
    assert report.exists(), f"vitest wrote no report:\n{process.stdout}\n{process.stderr}"
    results: dict[str, Any] = json.loads(report.read_bytes())
    tests = [
        VitestTest(test["fullName"], test["status"], tuple(test["failureMessages"]))
        for file in results["testResults"]
        for test in file["assertionResults"]
    ]
    failed = any(test.status == "failed" for test in tests)
    # A file that cannot be loaded fails the run, but none of its tests.
    assert failed or process.returncode == 0, f"vitest failed:\n{process.stdout}\n{process.stderr}"
    return tests
