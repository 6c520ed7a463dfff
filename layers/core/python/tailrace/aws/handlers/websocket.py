"""What API Gateway tells of WebSockets: connections, messages, and their end.

Nothing can be sent to a client before its connection is accepted, and that is what the answer to
`$connect` does. So the function wakes itself to say welcome, or why not: clients that are refused
are let in first, for a handshake that fails tells them nothing.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from tailrace.auth.authorizer import Authorizer, StaticPolicy
from tailrace.auth.origins import Origins
from tailrace.aws.edge.origin_guard import SECRET_HEADER, VIEWER_HEADER, origin_secret
from tailrace.aws.runtime.event_context import EventContext
from tailrace.aws.runtime.invoke import Functions
from tailrace.aws.runtime.policy_provider import provider
from tailrace.errors import BadRequest, NotThroughTheEdge, TailraceError
from tailrace.limits import CABLE_ACCEPT_SECONDS, CABLE_FRAME_BYTES, CABLE_QUIET_SECONDS
from tailrace.protocols.action_cable.api_gateway.conversation import Conversation
from tailrace.protocols.action_cable.api_gateway.gateway_api import Sent
from tailrace.protocols.action_cable.api_gateway.heartbeat import Lease
from tailrace.protocols.action_cable.api_gateway.items import Connection
from tailrace.protocols.action_cable.core import commands, frames, handshake, pings
from tailrace.protocols.action_cable.core.channels import Channels
from tailrace.protocols.action_cable.core.handshake import Guest
from tailrace.protocols.action_cable.core.session import anonymous
from tailrace.web.messages import Request
from tailrace.web.statuses import error_response

TASK: Final = "tailrace"
"""The key of an event that this function has sent to itself."""

OK: Final = {"statusCode": 200}

ACCEPT_PAUSE: Final = 0.03
"""Seconds between two looks whether a connection was accepted."""

COMMAND_SECONDS: Final = 24.0
"""How long a command may take: API Gateway waits for 29, and to hang up takes some, too."""

PROTOCOLS: Final = b"sec-websocket-protocol"


class Cable:
    def __init__(self) -> None:
        self._context = background = EventContext("cable")
        self._settings = settings = background.settings
        self._broadcaster, self._streams = background.broadcaster, background.streams
        self._clock = background.streams.clock
        self._provider = provider(settings) or StaticPolicy(Authorizer(settings))
        self._secret = origin_secret(settings)
        self._origins = Origins(settings.allowed_origins)
        self._functions = Functions(settings)
        self._lease = Lease(background.store.table, self._clock)

    def __call__(self, event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        kind = event.get("requestContext", {}).get("eventType", TASK)
        try:
            return self._context.run(self._answer(kind, event, context))
        finally:
            self._context.flush(event=kind.lower())

    def close(self) -> None:
        self._context.run(self._functions.close())
        self._context.close()

    async def _answer(self, kind: str, event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        match kind:
            case "CONNECT":
                return await self._connect(event, context.invoked_function_arn)
            case "MESSAGE":
                await self._message(event)
            case "DISCONNECT":
                await self._broadcaster.connections.drop(event["requestContext"]["connectionId"])
            case _:
                await self._welcome(event)
        return OK

    # Coming

    async def _connect(self, event: Mapping[str, Any], me: str) -> dict[str, Any]:
        connection: str = event["requestContext"]["connectionId"]
        self._context.observer.count("cable_connects_total")
        try:
            request = await self._handshake(event)
            handshake.check_origin(request, self._origins)
            authorizer = await self._provider.current()
        except TailraceError as error:
            return {"statusCode": error_response(error).status}
        offered = [each.strip() for each in (request.header(PROTOCOLS) or "").split(",")]
        protocol = frames.chosen(offered)
        guest = handshake.guest(request, authorizer, offered, self._clock())
        task: dict[str, Any] = {TASK: "welcome", "connection": connection}
        if guest.refusal is None:
            await self._enter(connection, request, guest)
            if protocol == frames.EXTENDED:
                task["resumed"] = handshake.resumed(request, authorizer, guest.identity)
        else:
            task["refusal"] = guest.refusal
        await self._functions.wake(me, task)
        return OK if protocol is None else {**OK, "headers": {"Sec-WebSocket-Protocol": protocol}}

    async def _handshake(self, event: Mapping[str, Any]) -> Request:
        """The request that CloudFront passed on; raises NotThroughTheEdge for any other."""
        fields = [
            (name.lower().encode(), value.encode("latin-1", "replace"))
            for name, values in (event.get("multiValueHeaders") or {}).items()
            for value in values
        ]
        headers = dict(fields)
        if not await self._secret.admits(headers.get(SECRET_HEADER, b"").decode("latin-1")):
            raise NotThroughTheEdge("ask the distribution; a function answers nobody else")
        query = urlencode(event.get("multiValueQueryStringParameters") or {}, doseq=True)
        viewer = headers.get(VIEWER_HEADER, b"").decode("latin-1")
        return Request("GET", self._settings.cable_path, query, fields, b"", peer=viewer)

    async def _enter(self, connection: str, request: Request, guest: Guest) -> None:
        query, least = request.parameters(), self._settings.ping_interval
        # Who asks for none gets as few as there have to be, and nobody more than others.
        asked = pings.interval(query, least)
        interval = max(asked, least) if asked else CABLE_QUIET_SECONDS
        await self._broadcaster.connections.open(
            Connection(
                connection,
                anonymous(connection) if guest.identity is None else guest.identity,
                self._clock(),
                min(interval, CABLE_QUIET_SECONDS),
                pings.unit(query),
                expires=guest.expires,
            )
        )

    async def _welcome(self, task: Mapping[str, Any]) -> None:
        connection: str = task["connection"]
        if (refusal := task.get("refusal")) is not None:
            await self._accepted(connection, frames.disconnect(refusal, reconnect=False))
            await self._broadcaster.gateway_api.end(connection)
            return
        frame = frames.welcome(connection)
        if (resumed := task.get("resumed")) is not None:
            identifiers = await self._broadcaster.connections.recall(*resumed)
            if identifiers is not None:
                frame = await (await self._conversation(connection)).resume(identifiers)
        if not await self._accepted(connection, frame):
            await self._broadcaster.gateway_api.end(connection)
            await self._broadcaster.connections.drop(connection)
        else:
            # Where that fails the clock does it: a task that fails comes again, and welcomes twice.
            with contextlib.suppress(TailraceError):
                await self._wake_heartbeat()

    async def _wake_heartbeat(self) -> None:
        if self._settings.heartbeat and not await self._lease.is_held():
            await self._functions.wake(self._settings.heartbeat, {TASK: "heartbeat"})

    async def _accepted(self, connection: str, frame: str) -> bool:
        """Sends the first frame as soon as there is somebody to get it."""
        end = time.monotonic() + CABLE_ACCEPT_SECONDS
        while (sent := await self._broadcaster.gateway_api.send(connection, [frame])) is Sent.GONE:
            if time.monotonic() > end:
                return False
            await asyncio.sleep(ACCEPT_PAUSE)
        return sent is Sent.OK

    # Speaking

    async def _message(self, event: Mapping[str, Any]) -> None:
        told = event["requestContext"]
        connection: str = told["connectionId"]
        text = event.get("body") or ""
        body = base64.b64decode(text) if event.get("isBase64Encoded") else text.encode()
        self._context.observer.count("cable_messages_total")
        if len(body) > CABLE_FRAME_BYTES:
            await self._broadcaster.gateway_api.end(connection)
            return
        try:
            command = commands.parse(body)
        except BadRequest:
            return  # What makes no sense is not answered, like a command that nobody knows.
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                conversation = await self._conversation(connection, told["requestTimeEpoch"])
                await conversation.receive(command)
        except Exception:
            # It comes back and says again what it wants, and what it has.
            self._context.observer.log.exception("a command failed")
            await self._broadcaster.hang_up(connection, "server_restart", reconnect=True)

    async def _conversation(self, connection: str, at: int = 0) -> Conversation:
        channels = Channels(await self._provider.current(), self._settings)
        return Conversation(self._broadcaster, self._streams, channels, connection, at)
