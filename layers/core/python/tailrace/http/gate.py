"""Every request of a stream is asked for at the door before anything is done for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from tailrace.auth.credentials import shown
from tailrace.auth.policy import Door, Operation, Pass
from tailrace.clock import Clock
from tailrace.http.paths import stream_path
from tailrace.http.wire import RawHeaders, Request

OPERATIONS: Final = {
    "PUT": Operation.CREATE,
    "POST": Operation.APPEND,
    "DELETE": Operation.DELETE,
    "GET": Operation.READ,
    "HEAD": Operation.HEAD,
}

_OPEN: Final = Pass(private=False, subject=None, by="open")
_VOUCHED: Final = Pass(private=False, subject=None, by="edge")


class Keeper(Protocol):
    """Who knows the door, which may be another one after its keys have changed."""

    async def current(self) -> Door: ...


class Fixed:
    """The door that the settings say."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def current(self) -> Door:
        return self._door


class Gate:
    def __init__(self, keeper: Keeper, clock: Clock) -> None:
        self._keeper = keeper
        self._clock = clock

    async def stream(self, request: Request, path: str) -> Pass:
        """Whether a request may go on to the stream at a path; raises what `Door.decide` does."""
        door = await self._keeper.current()
        if door.open:
            return _OPEN
        operation, now = OPERATIONS[request.method], self._clock()
        if request.vouched and operation in (Operation.READ, Operation.HEAD):
            return _VOUCHED
        credentials = shown(request.fields, request.parameters(), door.jwt_param)
        await door.prepare(credentials, now)
        passed = door.decide(operation, path, credentials, now)
        source = request.header(b"stream-forked-from") if request.method == "PUT" else None
        if source is not None:
            # Whoever may create must not copy what they may not read.
            door.decide(Operation.READ, stream_path(source), credentials, now)
        return passed

    async def listing(
        self, prefix: str, fields: RawHeaders, query: Mapping[str, Sequence[str]]
    ) -> None:
        """Whether the streams below a prefix may be listed."""
        door, now = await self._keeper.current(), self._clock()
        credentials = shown(fields, query, door.jwt_param)
        await door.prepare(credentials, now)
        door.decide(Operation.LIST, prefix, credentials, now)
