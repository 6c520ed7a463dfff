"""What `docs/aviso.md` says is there, and what is there it says."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tailrace.aviso.config import Config
from tailrace.aviso.errors import LABELS, Operation
from tailrace.aviso.frames import Frames, Reason
from tailrace.aviso.handlers import HANDLERS
from tailrace.settings import Settings
from tests.aviso.tools import Aviso, parse_frames
from tests.conftest import Server

DOCS = (Path(__file__).parents[2] / "docs" / "aviso.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)

FRAMES = Frames("a.*", "id")


@pytest.mark.parametrize("name", HANDLERS)
def test_every_type_of_field_is_documented(name: str) -> None:
    assert f"| `{name}`" in DOCS


@pytest.mark.parametrize("code", [*LABELS, *(f"INVALID_{each.name}_REQUEST" for each in Operation)])
def test_every_error_is_documented(code: str) -> None:
    assert f"`{code}`" in DOCS


@pytest.mark.parametrize(
    "frame",
    [
        FRAMES.established(0, 1),
        FRAMES.started(0, 1, None, 1, None),
        FRAMES.completed(0),
        FRAMES.limited(0, 1),
        FRAMES.heartbeat(0),
        FRAMES.closing(0, Reason.END),
    ],
    ids=["established", "started", "completed", "limited", "heartbeat", "closing"],
)
def test_every_frame_is_documented_with_its_fields(frame: bytes) -> None:
    ((name, data),) = parse_frames(frame)
    kind = data.pop("type", "reason" if data.pop("reason", None) else "")
    (row,) = re.findall(rf"^\| `{name}` \| (?:`{kind}`)? ?\| (.*) \|$", DOCS, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == set(data)


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_documented(reason: Reason) -> None:
    assert f"`{reason.value}`" in DOCS


def test_every_route_is_documented(aviso: Aviso) -> None:
    for name in aviso.routes._routes:
        method, path = name.split(" ")
        assert f"{method} /api/v1/{path}" in DOCS or f"`/api/v1/{path}" in DOCS


def test_the_schema_in_it_is_good(tmp_path: Path) -> None:
    (text,) = (text for kind, text in BLOCKS if kind == "yaml")
    file = tmp_path / "aviso.yaml"
    file.write_text(text)
    assert Config.load(Settings(aviso_schema=str(file), secret="s" * 32)).events["mars"].auth


def test_the_program_in_it_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = (text for kind, text in BLOCKS if kind == "python")
    assert '"extreme_event", start_from=0,' in program
    with Server(tmp_path / "data") as server:
        # The program goes on listening; a replay has an end.
        program = program.replace("start_from=0,", 'start_from=0, mode="replay_only",')
        exec(program.replace("http://127.0.0.1:4437", server.url), {})
        assert httpx.get(f"{server.url}/ready", trust_env=False).json()["status"] == "ready"
    assert capsys.readouterr().out == (
        "1 {'anomaly': '12.5', 'date': '2026-01-31', 'hazard': 'storm', 'polygon':"
        " [[46, 7], [46, 9], [48, 9], [46, 7]], 'severity': '5'} {'location': 's3://products/42'}\n"
    )
