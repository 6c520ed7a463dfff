"""Offset tokens: where a reader goes on, and in which stream.

A token is `{epoch:04d}{slot:012d}_{offset:016d}`: the slot to read next, and how much data lies
before the reader's position, in bytes (messages in JSON mode). A slot may hold several appends; the
offset says which of them the reader has. Tokens of one stream sort as text in the log's order.

The epoch tells a stream from another one that had its path before. It is a number that a stream
gets at random when it is created, and that its forks share, because they share its tokens. Tokens
of epoch 0000 are of any stream, such as the beginning of all.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tailrace.errors import BadOffset

START: Final = "0000000000000000_0000000000000000"
NOW: Final = -1
BEGINNING: Final = -2
"""The first slot that is still kept, where `START` is that of a stream which has lost none."""

EPOCHS: Final = 8999
"""How many epochs there are, from 1 on: the texts of all tokens begin below `9`."""

_TOKEN = re.compile(r"([0-9]{4})([0-9]{12})_([0-9]{16})")


class Position(NamedTuple):
    """Where a reader goes on."""

    slot: int
    """The slot to read next, `NOW` or `BEGINNING`."""
    offset: int = 0
    """The reader has the appends of the slot that end here or before."""
    epoch: int = 0
    """That of the stream that gave the token; 0: any."""


def epoch_of(incarnation: int) -> int:
    """Return the epoch of a new stream that is no fork."""
    return 1 + incarnation % EPOCHS


def token(slot: int, offset: int, epoch: int = 0) -> str:
    return f"{epoch:04d}{slot:012d}_{offset:016d}"


def parse(text: str) -> Position:
    """Parse a token."""
    match = _TOKEN.fullmatch(text)
    if match is None:
        raise BadOffset("an offset is a value this server gave as Stream-Next-Offset")
    epoch, slot, offset = match.groups()
    return Position(int(slot), int(offset), int(epoch))


def parse_position(text: str) -> Position:
    """Parse what a reader asks for: a token, `-1` for the beginning or `now` for the tail."""
    if text == "-1":
        return Position(BEGINNING)
    if text == "now":
        return Position(NOW)
    return parse(text)
