"""Records what was sent to a stream of messages and what its readers saw, and compares both.

A message says who sent it as which of its messages, so each is there once and can be told from all
others. The rest of it follows from that, so that changed bytes are noticed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

LARGE_SHARE: Final = 32
"""One message of so many is large."""
LARGE_BYTES: Final = 12_000
SMALL_BYTES: Final = 200


def message(name: str) -> dict[str, str]:
    """The message of this name, always the same."""
    die = zlib.crc32(name.encode())
    size = die % (LARGE_BYTES if die % LARGE_SHARE == 0 else SMALL_BYTES)
    return {"name": name, "padding": f"{die:08x}" * (size // 8)}


def render_message(name: str) -> str:
    return json.dumps(message(name))


def name_of(received: object) -> str:
    """The name of a received message; raises ValueError if it is not exactly as it was sent."""
    name = received.get("name") if isinstance(received, Mapping) else None
    if not isinstance(name, str) or received != message(name):
        raise ValueError(f"nobody sent this message: {json.dumps(received)[:300]}")
    return name


def names_in(body: bytes) -> list[str]:
    """The names of the messages in a body of JSON."""
    received: list[Any] = json.loads(body)
    return [name_of(each) for each in received]


@dataclass
class Sighting:
    """The messages that one reader got, from a position on."""

    reader: str
    start: int
    names: list[str] = field(default_factory=list)
    follows: bool = False
    """Whether the reader stays until it has everything."""

    @property
    def end(self) -> int:
        return self.start + len(self.names)


@dataclass
class Ledger:
    """One stream of messages."""

    path: str
    sent: set[str] = field(default_factory=set)
    acknowledged: list[str] = field(default_factory=list)
    """In the order of the acknowledgements, which is that of sending for each writer."""
    offsets: list[str] = field(default_factory=list)
    """Offsets that the server has given, at which readers may begin."""
    sightings: list[Sighting] = field(default_factory=list)

    def sighting(self, reader: str, start: int = 0, *, follows: bool = False) -> Sighting:
        self.sightings.append(Sighting(reader, start, follows=follows))
        return self.sightings[-1]

    def problems(self, content: Sequence[str]) -> Iterator[str]:
        """Yield what is wrong, when this is all that the stream holds in the end."""
        places = {name: at for at, name in reversed([*enumerate(content)])}
        for at, name in enumerate(content):
            if name not in self.sent:
                yield f"{self.path}: {name} is stored, but nobody sent it"
            if places[name] != at:
                yield f"{self.path}: {name} is stored twice, at {places[name]} and {at}"
        last: dict[str, str] = {}
        for name in self.acknowledged:
            if name not in places:
                yield f"{self.path}: {name} was acknowledged, but is not stored"
                continue
            writer = name.partition(".")[0]
            before = last.get(writer)
            if before is not None and places[before] > places[name]:
                yield f"{self.path}: {before} was acknowledged before {name}, but stored after it"
            last[writer] = name
        for sighting in self.sightings:
            yield from self._misread(sighting, content)

    def _misread(self, sighting: Sighting, content: Sequence[str]) -> Iterator[str]:
        stored = content[sighting.start : sighting.end]
        for at, (seen, there) in enumerate(zip(sighting.names, stored, strict=False)):
            if seen != there:
                where = f"position {sighting.start + at}"
                yield f"{self.path}: {sighting.reader} saw {seen} at {where}, where {there} is"
                return
        if len(sighting.names) > len(stored):
            yield f"{self.path}: {sighting.reader} saw more than there is"
        elif sighting.follows and sighting.end < len(content):
            missing = len(content) - sighting.end
            yield f"{self.path}: {sighting.reader} never got the last {missing} messages"
