"""A client on a WebSocket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from tailrace import metrics
from tailrace.errors import BadRequest
from tailrace.protocols.action_cable.core import commands, frames
from tailrace.protocols.action_cable.core.encoders import SOCKET
from tailrace.protocols.action_cable.in_process.conversation import Conversation
from tailrace.protocols.action_cable.in_process.outbox import Outbox

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


def no_room(_: str | tuple[str, ...]) -> bool:
    """In place of a function that writes at once: there is none."""
    return False


class Socket(Outbox):
    def __init__(
        self,
        sid: str,
        receive: Receive,
        send: SendMessage,
        write_now: Callable[[str | tuple[str, ...]], bool] = no_room,
        *,
        extended: bool = False,
    ) -> None:
        """`write_now` writes one or several texts at once, or returns False; a server need not
        support it."""
        super().__init__(sid, SOCKET, extended=extended)
        self._receive = receive
        self._send = send
        self._write_at_once = write_now
        self._reason = "server_restart"

    def end(self, reason: str, *, reconnect: bool, at_once: bool = False) -> None:
        if not self._finished:
            self._reason = reason
        super().end(reason, reconnect=reconnect, at_once=at_once)

    async def reject(self, reason: str) -> None:
        """Send the reason to a client that may not connect, and close the socket."""
        self._reason = reason
        await self._write(frames.disconnect(reason, reconnect=False))
        await self._close()

    async def converse(
        self, conversation: Conversation, begin: Callable[[], Awaitable[None]]
    ) -> None:
        """Serve the client until either side closes the connection."""
        await self._serve(conversation, self._receive_all(conversation, begin))

    async def _receive_all(
        self, conversation: Conversation, begin: Callable[[], Awaitable[None]]
    ) -> None:
        await begin()
        while (message := await self._receive())["type"] == "websocket.receive":
            text = message.get("text") or message.get("bytes") or ""
            metrics.count("client_msg_total")
            metrics.count("data_rcvd_total", by=len(text))
            try:
                await conversation.receive(commands.parse(text))
            except BadRequest:
                # Ignored, as an unknown command is: clients expect no answer.
                metrics.count("failed_client_msg_total")

    def _write_now(self, text: str) -> bool:
        return self._write_at_once(text)

    def _write_all_now(self, texts: tuple[str, ...]) -> bool:
        return self._write_at_once(texts)

    async def _write(self, text: str) -> None:
        await self._send({"type": "websocket.send", "text": text})

    async def _close(self) -> None:
        # An application may give reasons of its own.
        code, reason = CLOSES.get(self._reason, (1000, "Auth Failed"))
        await self._send({"type": "websocket.close", "code": code, "reason": reason})
