"""Handles the WebSocket events of API Gateway: `$connect`, messages, and `$disconnect`.

Nothing can be sent over a connection before it is accepted, which the response to `$connect` does.
So the function invokes itself to send the welcome. A client that is rejected is accepted first,
too, and then sent the reason: a client cannot see why a handshake fails.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from tailrace.auth.authorizer import Authorizer, StaticPolicy
from tailrace.auth.origins import Origins
from tailrace.aws.edge.origin_guard import SECRET_HEADER, VIEWER_HEADER, create_origin_secret
from tailrace.aws.runtime.event_context import TASK, EventContext
from tailrace.aws.runtime.policy_provider import create_policy_provider
from tailrace.errors import BadRequest, NotThroughTheEdge, TailraceError
from tailrace.limits import CABLE_FRAME_BYTES, GATEWAY_ACCEPT_SECONDS, GATEWAY_PING_SECONDS
from tailrace.protocols.action_cable.api_gateway.command_handler import CommandHandler
from tailrace.protocols.action_cable.api_gateway.gateway_api import SendResult
from tailrace.protocols.action_cable.api_gateway.heartbeat_lease import HeartbeatLease
from tailrace.protocols.action_cable.api_gateway.items import ConnectionRecord
from tailrace.protocols.action_cable.core import commands, frames, handshake, pings
from tailrace.protocols.action_cable.core.channels import Channels
from tailrace.protocols.action_cable.core.handshake import ConnectRequest
from tailrace.protocols.action_cable.core.session import anonymous_identity
from tailrace.web.messages import Request
from tailrace.web.statuses import error_response

OK: Final = {"statusCode": 200}

ACCEPT_PAUSE: Final = 0.03
"""Seconds between two attempts to send to a connection that is not accepted yet."""

COMMAND_SECONDS: Final = 24.0
"""Time limit of a command: below the 29 s of API Gateway, to leave time for a disconnect frame."""

PROTOCOLS: Final = b"sec-websocket-protocol"


class WebSocketHandler:
    def __init__(self) -> None:
        self._context = context = EventContext("cable")
        self._settings = settings = context.settings
        self._broadcaster, self._streams = context.broadcaster, context.streams
        self._clock = context.streams.clock
        self._provider = create_policy_provider(settings) or StaticPolicy(Authorizer(settings))
        self._secret = create_origin_secret(settings)
        self._origins = Origins(settings.allowed_origins)
        self._lease = HeartbeatLease(context.store.table, self._clock)

    def __call__(self, event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        kind = event.get("requestContext", {}).get("eventType", TASK)
        try:
            return self._context.run(self._handle(kind, event, context))
        finally:
            self._context.flush(event=kind.lower())

    def close(self) -> None:
        self._context.close()

    async def _handle(self, kind: str, event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        match kind:
            case "CONNECT":
                return await self._connect(event, context.invoked_function_arn)
            case "MESSAGE":
                await self._message(event)
            case "DISCONNECT":
                await self._broadcaster.connections.disconnect(
                    event["requestContext"]["connectionId"]
                )
            case _:
                await self._welcome(event)
        return OK

    # Connecting

    async def _connect(self, event: Mapping[str, Any], own_arn: str) -> dict[str, Any]:
        connection: str = event["requestContext"]["connectionId"]
        self._context.observer.count("cable_connects_total")
        try:
            request = await self._upgrade_request(event)
            handshake.check_origin(request, self._origins)
            authorizer = await self._provider.current()
        except TailraceError as error:
            return {"statusCode": error_response(error).status}
        offered = [each.strip() for each in (request.header(PROTOCOLS) or "").split(",")]
        protocol = frames.choose_protocol(offered)
        connect_request = handshake.authenticate(request, authorizer, offered, self._clock())
        task: dict[str, Any] = {TASK: "welcome", "connection": connection}
        if connect_request.reject_reason is None:
            extended = protocol == frames.EXTENDED
            await self._open(connection, request, connect_request, extended=extended)
            if extended:
                sid = handshake.sid_to_restore(request)
                identity = connect_request.identity
                task["restore"] = handshake.session_to_restore(sid, authorizer, identity)
        else:
            task["reject_reason"] = connect_request.reject_reason
        await self._context.functions.invoke(own_arn, task)
        return OK if protocol is None else {**OK, "headers": {"Sec-WebSocket-Protocol": protocol}}

    async def _upgrade_request(self, event: Mapping[str, Any]) -> Request:
        """The request of a handshake; raises NotThroughTheEdge if it bypassed CloudFront."""
        fields = [
            (name.lower().encode(), value.encode("latin-1", "replace"))
            for name, values in (event.get("multiValueHeaders") or {}).items()
            for value in values
        ]
        headers = dict(fields)
        if not await self._secret.matches(headers.get(SECRET_HEADER, b"").decode("latin-1")):
            raise NotThroughTheEdge("requests must come through CloudFront")
        query = urlencode(event.get("multiValueQueryStringParameters") or {}, doseq=True)
        viewer = headers.get(VIEWER_HEADER, b"").decode("latin-1")
        return Request("GET", self._settings.cable_path, query, fields, b"", peer=viewer)

    async def _open(
        self, connection: str, request: Request, connect_request: ConnectRequest, *, extended: bool
    ) -> None:
        query, shortest = request.parameters(), self._settings.ping_interval
        # Clients that disable pings still get the minimum that API Gateway needs to keep the
        # connection; none gets more than the default rate.
        requested = pings.interval(query, shortest)
        interval = max(requested, shortest) if requested else GATEWAY_PING_SECONDS
        identity = connect_request.identity
        await self._broadcaster.connections.open(
            ConnectionRecord(
                connection,
                anonymous_identity(connection) if identity is None else identity,
                self._clock(),
                min(interval, GATEWAY_PING_SECONDS),
                pings.unit(query),
                expires_at=connect_request.expires_at,
                extended=extended,
            )
        )

    async def _welcome(self, task: Mapping[str, Any]) -> None:
        connection: str = task["connection"]
        if (reason := task.get("reject_reason")) is not None:
            await self._send_first(connection, frames.disconnect(reason, reconnect=False))
            await self._broadcaster.gateway_api.end(connection)
            return
        try:
            welcomed = await self._begin(connection, task.get("restore"))
        except Exception:
            self._context.observer.log.exception("a welcome failed")
            await self._reconnect(connection)
            return
        if not welcomed:
            await self._broadcaster.gateway_api.end(connection)
            await self._broadcaster.connections.disconnect(connection)
        else:
            # If this fails, the schedule starts a heartbeat. If the task failed, Lambda would
            # repeat it, and the client would be welcomed twice.
            with contextlib.suppress(TailraceError):
                await self._wake_heartbeat()

    async def _begin(self, connection: str, earlier: tuple[str, str] | None) -> bool:
        """Send the welcome, after resuming an earlier session of the client, if it names one.
        Returns whether it was sent."""
        send_first, identifiers = partial(self._send_first, connection), None
        if earlier is not None:
            identifiers = await self._broadcaster.connections.restore(*earlier)
        if identifiers is None:
            return await send_first(frames.welcome(connection))
        handler = await self._command_handler(connection)
        return await handler.resume(identifiers, send_first)

    async def _wake_heartbeat(self) -> None:
        if self._settings.heartbeat and not await self._lease.is_held():
            await self._context.functions.invoke(self._settings.heartbeat, {TASK: "heartbeat"})

    async def _send_first(self, connection: str, frame: str) -> bool:
        """Send the first frame as soon as API Gateway has accepted the connection."""
        end = time.monotonic() + GATEWAY_ACCEPT_SECONDS
        send = self._broadcaster.gateway_api.send
        while (result := await send(connection, [frame])) is SendResult.GONE:
            if time.monotonic() > end:
                return False
            await asyncio.sleep(ACCEPT_PAUSE)
        return result is SendResult.OK

    # Messages

    async def _message(self, event: Mapping[str, Any]) -> None:
        request = event["requestContext"]
        connection: str = request["connectionId"]
        text = event.get("body") or ""
        body = base64.b64decode(text) if event.get("isBase64Encoded") else text.encode()
        self._context.observer.count("cable_messages_total")
        if len(body) > CABLE_FRAME_BYTES:
            await self._broadcaster.gateway_api.end(connection)
            return
        try:
            command = commands.parse(body)
        except BadRequest:
            return  # Invalid commands are ignored, as unknown ones are.
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                handler = await self._command_handler(connection, request["requestTimeEpoch"])
                await handler.receive(command)
        except Exception:
            self._context.observer.log.exception("a command failed")
            await self._reconnect(connection)

    async def _reconnect(self, connection: str) -> None:
        """Make a client reconnect, subscribe again, and ask for what it missed."""
        await self._broadcaster.close(connection, "server_restart", reconnect=True)

    async def _command_handler(self, connection: str, sent_at: int = 0) -> CommandHandler:
        channels = Channels(await self._provider.current(), self._settings)
        return CommandHandler(self._broadcaster, self._streams, channels, connection, sent_at)
