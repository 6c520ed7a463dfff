"""The embedded store with several appends in each slot, whatever its clients do.

    python -m tests.support.splitting serve --data DIR

serves it, for suites that know nothing of slots: the official one, stock clients, crashes.

It says nothing where a test compares what is stored with what was sent, append by append: in the
simulation, whose clients share slots by themselves, and in tests that fork through a whole append,
which are marked `whole_bodies` or named in tests/slow/conformance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from devtools.server import Server
from tailrace.cli import main
from tailrace.log import json_mode
from tailrace.log.content import Mode, length
from tailrace.log.slots import merge, share
from tailrace.log.state import Entry, State, Stream
from tailrace.store.base import Waiter
from tailrace.store.sqlite import store
from tailrace.store.sqlite.chain import Chain
from tailrace.store.sqlite.store import SqliteStore

ROOT = Path(__file__).parents[2]


class SplittingStore(SqliteStore):
    """Stores each body of two or more messages, characters or bytes as two appends of one slot.

    Large ones stay whole: each has a slot of its own."""

    async def create(self, stream: Stream, entries: Sequence[Entry]) -> Chain | None:
        state, split = stream.config.initial_state(), list[Entry]()
        for entry in entries:
            size = state.size + len(entry.body or b"")
            entry = entry._replace(state=entry.state._replace(size=size))
            first, *rest = halves(stream.config.mode, state, entry)
            split.append(merge(state, [first, *map(share, rest)]))
            state = split[-1].state
        return await super().create(stream, split)

    def put_then(self, chain: Chain, before: State, entry: Entry, waiter: Waiter) -> None:
        first, *rest = halves(chain.stream.config.mode, before, entry)
        large = len(entry.body or b"") > self._inline_bytes
        if chain.state is not before or large or not rest:
            super().put_then(chain, before, entry, waiter)
            return
        # Both are in one commit. Only the second has a caller, which learns what becomes of both.
        putting: asyncio.Future[int | None] = self._loop.create_future()
        super().put_then(chain, before, first, putting)
        putting.add_done_callback(lambda done: done.exception())
        second = share(rest[0]) if chain.state.slot == before.slot else rest[0]
        super().put_then(chain, chain.state, second, waiter)


def halves(mode: Mode, before: State, entry: Entry) -> Sequence[Entry]:
    """The two appends that have an entry's body between them, or the entry if that is too short.

    `before`: the state on which it was decided."""
    first, second = halve(mode, entry.body or b"")
    if not first or entry.parts:
        return [entry]
    state = entry.state
    middle = state._replace(
        offset=before.offset + length(mode, first), size=before.size + len(first), end=None
    )
    # Between two messages there was a comma, which is stored no longer.
    last = state._replace(slot=state.slot + 1, size=middle.size + len(second))
    if state.end is not None:
        last = last._replace(end=last.slot)
    return [
        entry._replace(body=first, state=middle),
        Entry(entry.slot + 1, second, last, note=entry.note),
    ]


def halve(mode: Mode, body: bytes) -> tuple[bytes, bytes]:
    """Two parts of a body; the first is empty if that is not possible."""
    if mode is Mode.JSON:
        messages = json_mode.split(body) if body else []
        half = len(messages) // 2
        return b",".join(messages[:half]), b",".join(messages[half:])
    half = len(body) // 2
    while mode is Mode.TEXT and half and body[half] & 0xC0 == 0x80:
        half -= 1
    return body[:half], body[half:]


class SplittingServer(Server):
    """A server over this store."""

    def __init__(self, data: Path, settings: Mapping[str, str] | None = None) -> None:
        environment = {"PYTHONPATH": str(ROOT), **(settings or {})}
        super().__init__(data, environment, ("-m", "tests.support.splitting"))


if __name__ == "__main__":
    store.SqliteStore = SplittingStore  # type: ignore[misc]
    main()
