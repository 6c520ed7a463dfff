"""One client that gets server-sent events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.commands import Command
from tailrace.protocols.action_cable.core.encoders import Encoder
from tailrace.protocols.action_cable.in_process.conversation import Conversation
from tailrace.protocols.action_cable.in_process.outbox import Outbox
from tailrace.web.messages import Sink

logger = logging.getLogger("tailrace")


class EventClient:
    def __init__(self, sid: str, encoder: Encoder, lifetime: float = 0) -> None:
        """`lifetime`: seconds until it is told to come back; 0: never."""
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
        pinging: Callable[[EventClient], Awaitable[None]],
        sink: Sink,
    ) -> None:
        async def send(text: str) -> None:
            if not sink.push(text.encode()):
                await sink.drain()

        async def begin() -> None:
            await conversation.begin()
            for command in commands:
                await conversation.receive(command)

        loop = asyncio.get_running_loop()
        ending = loop.call_later(self._lifetime, self._expire) if self._lifetime else None
        beginning = asyncio.ensure_future(begin())
        beginning.add_done_callback(self._begun)
        pings = asyncio.ensure_future(pinging(self))
        try:
            await self._outbox.pump(send)
        finally:
            conversation.end()
            if ending is not None:
                ending.cancel()
            for task in (beginning, pings):
                task.cancel()
            failed, _ = await asyncio.gather(beginning, pings, return_exceptions=True)
            if isinstance(failed, Exception):
                logger.error("a command of a cable client failed", exc_info=failed)

    def _begun(self, beginning: asyncio.Future[None]) -> None:
        if not beginning.cancelled() and beginning.exception() is not None:
            # Without its subscription it would get pings and nothing else.
            self._expire()

    def _expire(self) -> None:
        # A browser comes back by itself, and goes on where it was.
        self._outbox.finish("")

    def _too_slow(self) -> None:
        last = self.encoder.control(frames.disconnect("too_slow", reconnect=True))
        self._outbox.finish(last, at_once=True)
