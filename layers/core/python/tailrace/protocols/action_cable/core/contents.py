"""Splits the bodies of a stream into cable messages, without changing a byte.

| content type | a message is | its text |
|---|---|---|
| JSON | one message of an append | as it was appended |
| text | an append | a JSON string |
| anything else | an append | base64 in a JSON string |

The `offset` of a message is the stream's offset after it.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import orjson

from tailrace.limits import EVENT_STEP_BYTES
from tailrace.log import json_mode
from tailrace.log.content import Mode, length

_BATCH: Final = 256
"""Messages that are handled before other tasks run."""


class Message(NamedTuple):
    offset: int
    length: int
    """By how much it advances the offset."""
    text: str
    """JSON; empty if it is too large for a cable."""


def messages(
    mode: Mode, bodies: Sequence[bytes], end: int, start: int | None = None
) -> list[Message]:
    """The messages of consecutive bodies, after which the stream's offset is `end`.

    `start`: the offset before them, if it is known; then bodies of one message each need not be
    split."""
    if start is None:
        start = end - sum(length(mode, body) for body in bodies)
    return list(chain.from_iterable(batches(mode, bodies, start, end)))


def batches(
    mode: Mode,
    bodies: Sequence[bytes],
    start: int,
    end: int,
    limit: int = sys.maxsize,
) -> Iterator[list[Message]]:
    """The messages in steps of bounded work; a step may yield none.

    `limit`: the largest size of a message in bytes; larger ones get an empty text."""
    if mode is not Mode.JSON:
        yield from _whole(mode, bodies, start, limit)
    elif end - start == len(bodies):
        for first in range(0, len(bodies), _BATCH):
            yield [
                Message(start + i + 1, 1, _text(bodies[i], limit))
                for i in range(first, min(first + _BATCH, len(bodies)))
            ]
    else:
        offset = start
        for body in bodies:
            for texts in json_mode.batches(body):
                for first in range(0, len(texts) or 1, _BATCH):
                    some = texts[first : first + _BATCH]
                    yield [
                        Message(offset + place, 1, _text(text, limit))
                        for place, text in enumerate(some, 1)
                    ]
                    offset += len(some)


def _text(message: bytes, limit: int) -> str:
    return message.decode() if len(message) <= limit else ""


def _whole(mode: Mode, bodies: Sequence[bytes], start: int, limit: int) -> Iterator[list[Message]]:
    offset = start
    for body in bodies:
        offset += len(body)
        if len(body) > limit:
            yield [Message(offset, len(body), "")]
            continue
        parts: list[str] = []
        for part in _quoted(mode, body):
            if parts:
                yield []
            parts.append(part)
        yield [Message(offset, len(body), f'"{"".join(parts)}"')]


def _quoted(mode: Mode, body: bytes) -> Iterator[str]:
    """The body as a JSON string without its quotes, in pieces."""
    decoder = getincrementaldecoder("utf-8")("replace")
    size = EVENT_STEP_BYTES // 3 * 3
    for start in range(0, len(body), size):
        piece = body[start : start + size]
        if mode is Mode.TEXT:
            text = decoder.decode(piece, start + size >= len(body))
            yield orjson.dumps(text)[1:-1].decode()
        else:
            yield b64encode(piece).decode()
