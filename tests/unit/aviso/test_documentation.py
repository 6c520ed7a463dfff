"""Compares `docs/aviso.md` with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devtools.processes import ROOT
from tailrace.protocols.aviso.config import AvisoConfig
from tailrace.protocols.aviso.error_codes import LABELS, RequestKind
from tailrace.protocols.aviso.event_frames import EndReason, EventFrames
from tailrace.protocols.aviso.field_handlers import HANDLERS
from tailrace.protocols.aviso.request_body import Bound
from tailrace.settings import Settings
from tests.support.aviso import Aviso, parse_frames

DOCS = (ROOT / "docs" / "aviso.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)

FRAMES = EventFrames("a.*", "id")


def test_every_type_of_field_is_documented() -> None:
    assert [name for name in HANDLERS if f"| `{name}`" not in DOCS] == []


def test_every_error_is_documented() -> None:
    codes = [*LABELS, *(f"INVALID_{each.name}_REQUEST" for each in RequestKind)]
    assert [code for code in codes if f"`{code}`" not in DOCS] == []


@pytest.mark.parametrize(
    "frame",
    [
        FRAMES.established(0, 1),
        FRAMES.started(0, Bound(0), None, None, 1),
        FRAMES.completed(0),
        FRAMES.limited(0, 1),
        FRAMES.heartbeat(0),
        FRAMES.closing(0, EndReason.END),
    ],
    ids=["established", "started", "completed", "limited", "heartbeat", "closing"],
)
def test_every_frame_is_documented_with_its_fields(frame: bytes) -> None:
    ((name, data),) = parse_frames(frame)
    kind = data.pop("type", "reason" if data.pop("reason", None) else "")
    (row,) = re.findall(rf"^\| `{name}` \| (?:`{kind}`)? ?\| (.*) \|$", DOCS, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == set(data)


def test_every_reason_is_documented() -> None:
    assert [reason for reason in EndReason if f"`{reason.value}`" not in DOCS] == []


def test_every_route_is_documented(aviso: Aviso) -> None:
    for name in aviso.routes._routes:
        method, path = name.split(" ")
        assert f"{method} /api/v1/{path}" in DOCS or f"`/api/v1/{path}" in DOCS


def test_the_example_schema_is_valid(tmp_path: Path) -> None:
    (text,) = (text for kind, text in BLOCKS if kind == "yaml")
    file = tmp_path / "aviso.yaml"
    file.write_text(text)
    assert AvisoConfig.load(Settings(aviso_schema=str(file), secret="s" * 32)).events["mars"].auth
