"""Server-sent events that are encoded in pieces equal those encoded at once."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.log.content import Mode
from tailrace.protocols.durable_streams import sse

PAYLOADS = st.lists(st.sampled_from([b"\r", b"\n", b" ", b"a", "ä".encode()]), max_size=40).map(
    b"".join
)


def encode_at_once(payload: bytes) -> bytes:
    lines = re.split(rb"\r\n|\r|\n", payload)
    spaced = [b" " + line if line.startswith(b" ") else line for line in lines]
    return b"event: data\n%b\n" % b"".join(b"data:%b\n" % line for line in spaced)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(PAYLOADS, st.integers(1, 9))
def test_text_in_pieces_is_one_event(payload: bytes, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sse, "EVENT_STEP_BYTES", size)
        assert b"".join(sse.data_event(Mode.TEXT, payload)) == encode_at_once(payload)


def test_bytes_in_pieces_are_one_base64_text(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (3, 4, 5, 300):
        monkeypatch.setattr(sse, "EVENT_STEP_BYTES", size)
        for length in (0, 1, 2, 3, 4, 255):
            payload = bytes(range(length))
            expected = b"event: data\ndata:%b\n\n" % base64.b64encode(payload)
            assert b"".join(sse.data_event(Mode.BYTES, payload)) == expected
