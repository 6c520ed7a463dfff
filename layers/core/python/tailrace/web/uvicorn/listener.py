"""A connection whose answer waits for data: only what that takes.

A thousand clients that listen are connections, and little else. So while the server-sent events of
one wait, its protocol is a `Listener` instead of a `StreamProtocol`: with no parser, no task and no
timer. Whatever its client sends is kept until the answer has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from uvicorn.server import ServerState

from tailrace.errors import ServerBusy
from tailrace.web.messages import BodyMemory, Parked
from tailrace.web.uvicorn.exchange import frame_chunk
from tailrace.web.uvicorn.flow import Flow

logger = logging.getLogger("tailrace")


class ListenerServer:
    """The state that all listeners of a server share."""

    __slots__ = ("memory", "protocol", "state")

    def __init__(self, state: ServerState, protocol: Callable[[], Any], memory: BodyMemory) -> None:
        """`protocol`: makes one for a connection whose answer has ended. `memory`: bounds what
        clients have sent meanwhile."""
        self.state: Final = state
        self.protocol: Final = protocol
        self.memory: Final = memory


class Listener(asyncio.Protocol):
    """A connection while its streaming answer waits, and the sink of that."""

    __slots__ = (
        "_ended",
        "_flow",
        "_is_chunked",
        "_keep_alive",
        "_parked",
        "_server",
        "_task",
        "_transport",
        "_unread",
    )

    def __init__(
        self,
        server: ListenerServer,
        transport: asyncio.Transport,
        flow: Flow,
        parked: Parked,
        *,
        is_chunked: bool,
        keep_alive: bool,
        ended: Callable[[], None] | None,
    ) -> None:
        """`ended`: called after the answer."""
        self._server = server
        self._transport = transport
        self._flow = flow
        self._parked = parked
        self._task: asyncio.Task[None] | None = None
        """Goes on with the answer, when that has more to do than to wait."""
        self._unread = b""
        self._is_chunked = is_chunked
        self._keep_alive = keep_alive
        self._ended = ended
        transport.set_protocol(self)
        server.state.connections.add(self)  # type: ignore[arg-type]
        parked.park(self, self._wake)

    # The sink

    async def drain(self) -> None:
        await self._flow.drain()

    def push(self, data: bytes) -> bool:
        transport = self._transport
        if transport.is_closing():
            return False
        transport.write(frame_chunk(data) if self._is_chunked else data)
        return not self._flow.write_paused

    # The answer

    def _wake(self) -> None:
        if self._parked.over:
            self._finish()
        else:
            self._task = asyncio.get_running_loop().create_task(self._resume())

    async def _resume(self) -> None:
        try:
            waits = await self._parked.resume()
        except Exception:
            logger.exception("a response failed while it waited")
            self._transport.close()
            return
        self._task = None
        if waits:
            self._parked.park(self, self._wake)
        else:
            self._finish()

    def _finish(self) -> None:
        """End the answer, and let the connection have its next request."""
        transport, server, unread = self._transport, self._server, self._unread
        server.state.total_requests += 1
        self._record()
        if transport.is_closing():
            return
        if self._is_chunked:
            transport.write(b"0\r\n\r\n")
        if not self._keep_alive:
            transport.close()
            return
        self._forget()
        protocol = server.protocol()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.flow = self._flow
        self._flow.resume_reading()
        if unread:
            protocol.data_received(unread)

    def _record(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()

    def _forget(self) -> None:
        self._server.memory.release(len(self._unread))
        self._unread = b""
        self._server.state.connections.discard(self)

    # Called by the transport

    def data_received(self, data: bytes) -> None:
        """Keep the next request until the answer has ended."""
        self._flow.pause_reading()
        try:
            self._server.memory.reserve(len(data))
        except ServerBusy:
            self._transport.abort()
            return
        self._unread += data

    def pause_writing(self) -> None:
        self._flow.pause_writing()

    def resume_writing(self) -> None:
        self._flow.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._record()
        self._forget()
        self._flow.resume_writing()
        if self._task is not None:
            self._task.cancel()
        else:
            self._parked.leave()

    # Called by uvicorn

    def shutdown(self) -> None:
        """End the connection with its answer."""
        self._keep_alive = False
