"""The README's examples, run as a reader would: each command in order, its output as shown."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from devtools.processes import ROOT
from devtools.server import Server

README = ROOT / "README.md"
BLOCKS = re.findall(r"```console\n(.*?)```", README.read_text(), re.DOTALL)
SHOWN = "http://127.0.0.1:4437"
EPOCH = re.compile("[0-9]{4}(?=[0-9]{12}_[0-9]{16})")
"""The first digits of an offset, which are others for every stream."""


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not on this machine")
def test_examples(server: Server) -> None:
    for block in BLOCKS:
        lines = block.replace(SHOWN, server.url).splitlines()
        script = "\n".join(line[2:] for line in lines if line.startswith("$ "))
        expected = [line for line in lines if line and not line.startswith("$ ")]
        run = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, timeout=300, check=True
        )
        printed = iter(EPOCH.sub("EPOCH", run.stdout).splitlines())
        for line in expected:
            pattern = re.escape(EPOCH.sub("EPOCH", line)).replace(re.escape("..."), ".*")
            assert any(re.search(pattern, each) for each in printed), (
                f"README shows {line!r}, but the output was:\n{run.stdout}"
            )
