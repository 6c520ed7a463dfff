"""The offset of a read of many streams: the position in each of them, in one short text.

It is safe in a URL, in a header and as the id of an event. Streams are named by a digest of their
path: a request names them in full, so that these only have to be told apart.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

from tailrace.errors import BadOffset
from tailrace.log.offsets import Position

_PART: Final = re.compile(
    r"([0-9a-f]{12})\.([0-9a-f]{1,10})\.([0-9a-f]{1,14})\.([0-9a-f]{1,4})(z?)"
)


class Known(NamedTuple):
    """Where an earlier answer ended, by path."""

    positions: Mapping[str, Position]
    closed: Collection[str]
    """The streams whose end the client knows."""


def pack(positions: Mapping[str, Position], closed: Collection[str]) -> str:
    """Write positions by path; a stream that does not exist has none."""
    parts = (
        f"{_digest(path)}.{slot:x}.{offset:x}.{epoch:x}{'z' if path in closed else ''}"
        for path, (slot, offset, epoch) in positions.items()
    )
    return "~".join(parts) or "0"


def unpack(text: str, paths: Iterable[str]) -> Known:
    """Return what is known of those streams that have a position."""
    names = {_digest(path): path for path in paths}
    positions, closed = dict[str, Position](), set[str]()
    for part in text.split("~") if text != "0" else ():
        match = _PART.fullmatch(part)
        if match is None:
            raise BadOffset("the offset of a read of many streams is one that such a read gave")
        digest, *numbers, end = match.groups()
        path = names.get(digest)
        if path is not None:
            positions[path] = Position(*(int(each, 16) for each in numbers))
            if end:
                closed.add(path)
    return Known(positions, closed)


def _digest(path: str) -> str:
    return blake2b(path.encode(), digest_size=6).hexdigest()
