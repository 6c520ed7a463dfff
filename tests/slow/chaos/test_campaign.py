"""A round of `make chaos` at each place, and a short fuzz."""

from __future__ import annotations

import subprocess
import sys

import pytest

from devtools.processes import ROOT


@pytest.mark.parametrize(
    "arguments",
    [
        ("--round", "0"),
        ("--round", "1"),
        ("--round", "3"),
        ("--only", "fuzz", "--requests", "5000"),
    ],
    ids=["embedded", "shared", "damaged", "fuzz"],
)
def test_nothing_is_violated(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "devtools.chaos", "--seed", "20240611", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
