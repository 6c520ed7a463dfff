"""A client of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tailrace.live.follower import Sink
from tailrace.protocols.action_cable.core.commands import Command
from tailrace.protocols.action_cable.core.encoders import Encoder
from tailrace.protocols.action_cable.in_process.conversation import Conversation
from tailrace.protocols.action_cable.in_process.outbox import Outbox


class EventClient(Outbox):
    def __init__(self, sid: str, encoder: Encoder, sink: Sink, lifetime: float = 0) -> None:
        """`lifetime`: seconds until the response ends and the browser reconnects; 0: never."""
        super().__init__(sid, encoder, extended=True)
        self._sink = sink
        self._has_room = True
        self._lifetime = lifetime

    async def converse(self, conversation: Conversation, commands: Sequence[Command]) -> None:
        """Serve the client until the response ends."""
        loop = asyncio.get_running_loop()
        # The browser reconnects by itself, and sends the id of its last event.
        expiry = loop.call_later(self._lifetime, self._finish, "") if self._lifetime else None
        try:
            await self._serve(conversation, self._subscribe(conversation, commands))
        finally:
            if expiry is not None:
                expiry.cancel()

    async def _subscribe(self, conversation: Conversation, commands: Sequence[Command]) -> None:
        await conversation.begin()
        for command in commands:
            await conversation.receive(command)
        await asyncio.get_running_loop().create_future()

    def _write_now(self, text: str) -> bool:
        if not self._has_room:
            return False
        self._has_room = self._sink.push(text.encode())
        return True

    def _write_all_now(self, texts: tuple[str, ...]) -> bool:
        return self._write_now("".join(texts))

    async def _write(self, text: str) -> None:
        if not self._has_room:
            await self._sink.drain()
        self._has_room = self._sink.push(text.encode())

    async def _close(self) -> None:
        self._end_in(0)
