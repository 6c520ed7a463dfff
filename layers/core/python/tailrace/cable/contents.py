"""What a stream holds, as cable messages: bodies taken apart, byte for byte.

| content type | a message is | its text |
|---|---|---|
| JSON | one message of an append | as it was appended |
| text | an append | a JSON string |
| anything else | an append | base64 in a JSON string |

The `offset` of a message is the stream's offset after it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import orjson

from tailrace.log import json_mode
from tailrace.log.content import Mode


class Message(NamedTuple):
    slot: int
    offset: int
    length: int
    """By how much it moved the offset."""
    text: str
    """JSON."""


def messages(
    mode: Mode, bodies: Sequence[bytes], slot: int, end: int, start: int | None = None
) -> list[Message]:
    """The messages of bodies from a slot on, after which the stream's offset is `end`.

    `start`: the offset before them, if it is known: when each is one message nothing has to be
    taken apart."""
    if mode is not Mode.JSON:
        return list(_whole(mode, bodies, slot, end))
    if start is not None and end - start == len(bodies):
        return [Message(slot + i, start + i + 1, 1, body.decode()) for i, body in enumerate(bodies)]
    parts = [json_mode.split(body) for body in bodies]
    offset = end - sum(map(len, parts))
    found: list[Message] = []
    for i, some in enumerate(parts):
        for text in some:
            offset += 1
            found.append(Message(slot + i, offset, 1, text.decode()))
    return found


def _whole(mode: Mode, bodies: Sequence[bytes], slot: int, end: int) -> Iterator[Message]:
    offset = end - sum(map(len, bodies))
    for i, body in enumerate(bodies):
        offset += len(body)
        yield Message(slot + i, offset, len(body), _quoted(mode, body))


def _quoted(mode: Mode, body: bytes) -> str:
    text = body.decode(errors="replace") if mode is Mode.TEXT else b64encode(body).decode()
    return orjson.dumps(text).decode()
