"""One client on a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from tailrace.errors import BadRequest
from tailrace.limits import CABLE_CLOSE_SECONDS
from tailrace.protocols.action_cable.core import commands, frames
from tailrace.protocols.action_cable.core.encoders import SOCKET
from tailrace.protocols.action_cable.in_process.conversation import Conversation
from tailrace.protocols.action_cable.in_process.outbox import Outbox

logger = logging.getLogger("tailrace")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
SendMessage = Callable[[Message], Awaitable[None]]

CLOSES: Final = {
    "unauthorized": (1000, "Auth Failed"),
    "token_expired": (1000, "Auth Failed"),
    "remote": (1000, "Closed remotely"),
    "server_restart": (1001, "Server restart"),
    "too_slow": (1000, "Too slow"),
}
"""With which code and words a WebSocket is closed after each reason to disconnect."""


class Socket:
    encoder = SOCKET

    def __init__(
        self,
        sid: str,
        receive: Receive,
        send: SendMessage,
        write_now: Callable[[str], bool] | None = None,
    ) -> None:
        """`write_now`: as `Outbox` has it, where the server can do that."""
        self.sid = sid
        self._receive = receive
        self._send = send
        self._outbox = Outbox(self._too_slow, write_now)
        self._close = (1000, "")
        self._ended = asyncio.Event()

    def push(self, text: str) -> None:
        self._outbox.push(text)

    async def drain(self) -> None:
        await self._outbox.drain()

    def end(self, reason: str, *, reconnect: bool) -> None:
        self._end(reason, reconnect=reconnect)

    async def refuse(self, reason: str) -> None:
        """A connection that never was one."""
        self._end(reason, reconnect=False)
        await self._pump()

    async def converse(
        self,
        conversation: Conversation,
        begin: Callable[[], Awaitable[None]],
        pinging: Callable[[Socket], Awaitable[None]],
    ) -> None:
        """Until one of both hangs up."""
        pump = asyncio.ensure_future(self._pump())
        listening = asyncio.ensure_future(self._listen(conversation, begin))
        pings = asyncio.ensure_future(pinging(self))
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((pump, listening, ended), return_when=asyncio.FIRST_COMPLETED)
            if ended.done() and not listening.done():
                # Who is told to go may be too slow to hear it.
                await asyncio.wait((pump, listening), timeout=CABLE_CLOSE_SECONDS)
        finally:
            conversation.end()
            for task in (pump, listening, pings, ended):
                task.cancel()
            _, failed, *_ = await asyncio.gather(
                pump, listening, pings, ended, return_exceptions=True
            )
            if isinstance(failed, Exception):
                logger.error("a command of a cable client failed", exc_info=failed)

    async def _listen(
        self, conversation: Conversation, begin: Callable[[], Awaitable[None]]
    ) -> None:
        await begin()
        while (message := await self._receive())["type"] == "websocket.receive":
            text = message.get("text") or message.get("bytes") or ""
            # What makes no sense is not answered, like a command that nobody knows.
            with contextlib.suppress(BadRequest):
                await conversation.receive(commands.parse(text))

    async def _pump(self) -> None:
        await self._outbox.pump(self._send_text)
        code, reason = self._close
        await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def _send_text(self, text: str) -> None:
        await self._send({"type": "websocket.send", "text": text})

    def _too_slow(self) -> None:
        self._end("too_slow", reconnect=True, at_once=True)

    def _end(self, reason: str, *, reconnect: bool, at_once: bool = False) -> None:
        self._close = CLOSES[reason]
        self._outbox.finish(frames.disconnect(reason, reconnect=reconnect), at_once=at_once)
        self._ended.set()
