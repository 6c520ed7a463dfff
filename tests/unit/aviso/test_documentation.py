"""What `docs/aviso.md` says is there, and what is there it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devtools.processes import ROOT
from tailrace.protocols.aviso.config import Config
from tailrace.protocols.aviso.errors import LABELS, Operation
from tailrace.protocols.aviso.frames import Frames, Reason
from tailrace.protocols.aviso.handlers import HANDLERS
from tailrace.settings import Settings
from tests.support.aviso import Aviso, parse_frames

DOCS = (ROOT / "docs" / "aviso.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)

FRAMES = Frames("a.*", "id")


def test_every_type_of_field_is_documented() -> None:
    assert [name for name in HANDLERS if f"| `{name}`" not in DOCS] == []


def test_every_error_is_documented() -> None:
    codes = [*LABELS, *(f"INVALID_{each.name}_REQUEST" for each in Operation)]
    assert [code for code in codes if f"`{code}`" not in DOCS] == []


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


def test_every_reason_is_documented() -> None:
    assert [reason for reason in Reason if f"`{reason.value}`" not in DOCS] == []


def test_every_route_is_documented(aviso: Aviso) -> None:
    for name in aviso.routes._routes:
        method, path = name.split(" ")
        assert f"{method} /api/v1/{path}" in DOCS or f"`/api/v1/{path}" in DOCS


def test_the_schema_in_it_is_good(tmp_path: Path) -> None:
    (text,) = (text for kind, text in BLOCKS if kind == "yaml")
    file = tmp_path / "aviso.yaml"
    file.write_text(text)
    assert Config.load(Settings(aviso_schema=str(file), secret="s" * 32)).events["mars"].auth
