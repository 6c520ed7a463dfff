"""Offset tokens: the slot to read next, and how much data lies before it.

A token is `{slot:016d}_{offset:016d}`, so tokens of one stream sort as text in the log's order.
Only the slot addresses anything; the offset counts bytes (messages in JSON mode) for the reader.
"""

from __future__ import annotations

import re
from typing import Final

from tailrace.errors import BadOffset

START: Final = "0000000000000000_0000000000000000"
NOW: Final = -1
BEGINNING: Final = -2
"""The first slot that is still kept, where `START` is that of a stream which has lost none."""

_TOKEN = re.compile(r"([0-9]{16})_[0-9]{16}")


def token(slot: int, offset: int) -> str:
    return f"{slot:016d}_{offset:016d}"


def parse(text: str) -> int:
    """The slot that a token names."""
    match = _TOKEN.fullmatch(text)
    if match is None:
        raise BadOffset("an offset is a value this server gave as Stream-Next-Offset")
    return int(match[1])


def count(text: str) -> int:
    """Return the offset in a token of this server: how much data lies before its slot."""
    return int(text[17:])


def parse_position(text: str) -> int:
    """The slot that a reader asks for: a token, `-1` for the beginning or `now` for the tail."""
    if text == "-1":
        return BEGINNING
    if text == "now":
        return NOW
    return parse(text)
