"""How the parts of the log that have no columns of their own are written down: as JSON."""

from __future__ import annotations

from typing import Any, Final

import orjson

from tailrace.log.state import NO_PRODUCERS, Ancestor, Config, Fork, Producer, State, Stream

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


def config_text(config: Config) -> bytes:
    return orjson.dumps(config._asdict(), default=list)


def stream_of(chain: int, path: str, config: bytes) -> Stream:
    value = orjson.loads(config)
    fork = value["fork"]
    if fork is not None:
        source, parent, at, sub_offset, lineage = fork
        fork = Fork(source, parent, at, sub_offset, tuple(Ancestor(*each) for each in lineage))
    return Stream(path, chain, Config(**{**value, "fork": fork, "base": tuple(value["base"])}))
