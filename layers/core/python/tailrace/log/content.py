"""Content types: how a stream's bytes are counted, joined and shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Final

from tailrace.errors import BadHeader
from tailrace.limits import CONTENT_TYPE_BYTES
from tailrace.log import json_mode

DEFAULT_TYPE: Final = "application/octet-stream"

_NAME = r"[A-Za-z0-9!#$&^_.+'*`|~%-]+"
_MEDIA_TYPE = re.compile(rf"{_NAME}/{_NAME}(?:[ \t]*;[\x20-\x7e\t]*)?")


_CONTINUES: Final = 0x80
"""The highest bits of a byte that continues a character of UTF-8, of its two."""


class Mode(Enum):
    """The meaning of a stream's content type for its log."""

    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"


@lru_cache(maxsize=1024)
def media_type(content_type: str) -> str:
    """Return the type without its parameters, in lower case, to compare types by."""
    return content_type.partition(";")[0].strip().lower()


def same_type(one: str, other: str) -> bool:
    return one == other or media_type(one) == media_type(other)


@lru_cache(maxsize=1024)
def mode(content_type: str) -> Mode:
    kind = media_type(content_type)
    if kind == "application/json":
        return Mode.JSON
    return Mode.TEXT if kind.startswith("text/") else Mode.BYTES


@lru_cache(maxsize=1024)
def check_type(content_type: str) -> str:
    """Return the type unchanged; raise `BadHeader` when it is not a media type."""
    if len(content_type) > CONTENT_TYPE_BYTES or not _MEDIA_TYPE.fullmatch(content_type):
        raise BadHeader(
            f"Content-Type '{content_type[:80]}' is not a media type such as text/plain"
        )
    return content_type


def length(kind: Mode, body: bytes) -> int:
    """By how much a stored body moves the offset."""
    return json_mode.count(body) if kind is Mode.JSON else len(body)


def drop(kind: Mode, body: bytes, count: int) -> bytes:
    """A stored body without its first messages, or bytes; of text, whole characters remain."""
    if kind is Mode.JSON:
        return b",".join(json_mode.split(body)[count:])
    while kind is Mode.TEXT and count < len(body) and body[count] & 0xC0 == _CONTINUES:
        count += 1
    return body[count:]


def join_bodies(kind: Mode, bodies: Sequence[bytes]) -> bytes:
    """Stored bodies as one response body."""
    if kind is Mode.JSON:
        return b"[%b]" % b",".join(bodies)
    return bodies[0] if len(bodies) == 1 else b"".join(bodies)
