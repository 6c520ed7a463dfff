"""A client on a WebSocket."""

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
"""The code and reason with which a WebSocket is closed, by the reason of the disconnect frame."""


class Socket:
    encoder = SOCKET

    def __init__(
        self,
        sid: str,
        receive: Receive,
        send: SendMessage,
        write_now: Callable[[str], bool] | None = None,
    ) -> None:
        """`write_now`: see `Outbox`; None if the server does not support it."""
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

    async def reject(self, reason: str) -> None:
        """Send the reason to a client that may not connect, and close the socket."""
        self._end(reason, reconnect=False)
        await self._pump()

    async def converse(
        self,
        conversation: Conversation,
        begin: Callable[[], Awaitable[None]],
        send_pings: Callable[[Socket], Awaitable[None]],
    ) -> None:
        """Serve the client until either side closes the connection."""
        pump = asyncio.ensure_future(self._pump())
        receiving = asyncio.ensure_future(self._receive_all(conversation, begin))
        pings = asyncio.ensure_future(send_pings(self))
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((pump, receiving, ended), return_when=asyncio.FIRST_COMPLETED)
            if ended.done() and not receiving.done():
                # The client may be too slow to read the disconnect frame.
                await asyncio.wait((pump, receiving), timeout=CABLE_CLOSE_SECONDS)
        finally:
            conversation.end()
            for task in (pump, receiving, pings, ended):
                task.cancel()
            _, result, *_ = await asyncio.gather(
                pump, receiving, pings, ended, return_exceptions=True
            )
            if isinstance(result, Exception):
                logger.error("a command of a cable client failed", exc_info=result)

    async def _receive_all(
        self, conversation: Conversation, begin: Callable[[], Awaitable[None]]
    ) -> None:
        await begin()
        while (message := await self._receive())["type"] == "websocket.receive":
            text = message.get("text") or message.get("bytes") or ""
            # An invalid command is ignored, as an unknown one is: clients expect no answer.
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
