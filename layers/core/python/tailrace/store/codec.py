"""How the parts of the log that have no columns of their own are written down: as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from tailrace.log.state import (
    NO_PRODUCERS,
    Ancestor,
    Config,
    Fork,
    Part,
    Producer,
    State,
    Stream,
)

_PLAIN: Final = State(0, 0, 0, 0)[4:]


def state_of(slot: int, offset: int, size: int, at: int, rest: bytes | None) -> State:
    """The state that the entry in `slot` left behind."""
    if rest is None:
        return State(slot + 1, offset, size, at)
    value = orjson.loads(rest)
    return State(
        slot + 1,
        offset,
        size,
        at,
        value.get("e"),
        Producer(*value["c"]) if "c" in value else None,
        value.get("q"),
        {producer: (epoch, seq) for producer, epoch, seq in value.get("p", ())} or NO_PRODUCERS,
        value.get("s", 0),
        "g" in value,
        "w" in value,
    )


def rest_of(state: State) -> bytes | None:
    """e: end, c: closer, q: Stream-Seq, p: producers in order, s: times spilled, g: gone;
    w: the last of the producers wrote the entry."""
    if state[4:] == _PLAIN:
        return None
    value: dict[str, Any] = {}
    if state.end is not None:
        value["e"] = state.end
    if state.closer is not None:
        value["c"] = list(state.closer)
    if state.seq is not None:
        value["q"] = state.seq
    if state.producers:
        value["p"] = [(producer, *last) for producer, last in state.producers.items()]
    if state.spilled:
        value["s"] = state.spilled
    if state.deleted:
        value["g"] = 1
    if state.produced:
        value["w"] = 1
    return orjson.dumps(value)


def parts_text(parts: Sequence[Part]) -> bytes | None:
    """The appends of an entry, each as [length, step, author, note] without what it lacks at its
    end; None when it is one."""
    if not parts:
        return None
    rows: list[list[Any]] = []
    for length, step, author, note in parts:
        row: list[Any] = [length, step]
        if author is not None or note is not None:
            row.append(author)
        if note is not None:
            row.append(note)
        rows.append(row)
    return orjson.dumps(rows, default=list)


def parts_of(text: bytes | None) -> Sequence[Part]:
    """The appends of an entry; empty when it is one."""
    return () if text is None else [_part(*row) for row in orjson.loads(text)]


def _part(
    length: int, step: int, author: tuple[str, int, int] | None = None, note: str | None = None
) -> Part:
    return Part(length, step, None if author is None else Producer(*author), note)


def config_text(config: Config) -> bytes:
    return orjson.dumps(config._asdict(), default=list)


def stream_of(chain: int, path: str, config: bytes) -> Stream:
    value = orjson.loads(config)
    fork = value["fork"]
    if fork is not None:
        source, parent, at, sub_offset, lineage, *inside = fork
        lineage = tuple(Ancestor(*each) for each in lineage)
        fork = Fork(source, parent, at, sub_offset, lineage, *inside)
    return Stream(path, chain, Config(**{**value, "fork": fork, "base": tuple(value["base"])}))
