"""The example program of `docs/aviso.md`."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from devtools.processes import ROOT
from devtools.server import Server

BLOCKS = re.findall(
    r"^```(\w+)\n(.*?)^```$",
    (ROOT / "docs" / "aviso.md").read_text(),
    re.DOTALL | re.MULTILINE,
)


def test_the_example_program_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = (text for kind, text in BLOCKS if kind == "python")
    assert '"extreme_event", start_from=0,' in program
    with Server(tmp_path / "data") as server:
        # The program would listen forever; a replay ends.
        program = program.replace("start_from=0,", 'start_from=0, mode="replay_only",')
        exec(program.replace("http://127.0.0.1:4437", server.url), {})
        assert httpx.get(f"{server.url}/ready", trust_env=False).json()["status"] == "ready"
    assert capsys.readouterr().out == (
        "1 {'anomaly': '12.5', 'date': '2026-01-31', 'hazard': 'storm', 'polygon':"
        " [[46.0, 7.0], [46.0, 9.0], [48.0, 9.0], [46.0, 7.0]], 'severity': '5'}"
        " {'location': 's3://products/42'}\n"
    )
