"""A client of server-sent events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from tailrace.live.follower import Sink
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.commands import Command
from tailrace.protocols.action_cable.core.encoders import Encoder
from tailrace.protocols.action_cable.in_process.conversation import Conversation
from tailrace.protocols.action_cable.in_process.outbox import Outbox

logger = logging.getLogger("tailrace")


class EventClient:
    def __init__(self, sid: str, encoder: Encoder, lifetime: float = 0) -> None:
        """`lifetime`: seconds until the response ends and the browser reconnects; 0: never."""
        self.sid = sid
        self.encoder = encoder
        self._lifetime = lifetime
        self._outbox = Outbox(self._too_slow)

    def push(self, text: str) -> None:
        self._outbox.push(text)

    async def drain(self) -> None:
        await self._outbox.drain()

    def end(self, reason: str, *, reconnect: bool) -> None:
        self._outbox.finish(self.encoder.control(frames.disconnect(reason, reconnect=reconnect)))

    async def converse(
        self,
        conversation: Conversation,
        commands: Sequence[Command],
        send_pings: Callable[[EventClient], Awaitable[None]],
        sink: Sink,
    ) -> None:
        async def send(text: str) -> None:
            if not sink.push(text.encode()):
                await sink.drain()

        async def subscribe() -> None:
            await conversation.begin()
            for command in commands:
                await conversation.receive(command)

        loop = asyncio.get_running_loop()
        expiry = loop.call_later(self._lifetime, self._expire) if self._lifetime else None
        start = asyncio.ensure_future(subscribe())
        start.add_done_callback(self._started)
        pings = asyncio.ensure_future(send_pings(self))
        try:
            await self._outbox.pump(send)
        finally:
            conversation.end()
            if expiry is not None:
                expiry.cancel()
            for task in (start, pings):
                task.cancel()
            result, _ = await asyncio.gather(start, pings, return_exceptions=True)
            if isinstance(result, Exception):
                logger.error("a command of a cable client failed", exc_info=result)

    def _started(self, start: asyncio.Future[None]) -> None:
        if not start.cancelled() and start.exception() is not None:
            # Without its subscription the client would get nothing but pings.
            self._expire()

    def _expire(self) -> None:
        # The browser reconnects by itself, and sends the id of its last event.
        self._outbox.finish("")

    def _too_slow(self) -> None:
        last = self.encoder.control(frames.disconnect("too_slow", reconnect=True))
        self._outbox.finish(last, at_once=True)
