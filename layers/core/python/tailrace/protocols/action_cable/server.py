"""The requests of Action Cable: WebSockets, broadcasts, and server-sent events.

On AWS, API Gateway keeps the WebSockets. There this serves broadcasts to an `Audience` of its
connections, without a hub, and server-sent events with a hub for the connections of one function.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Mapping, MutableMapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

from tailrace.auth.authorizer import Authorizer, Operation, PolicyProvider
from tailrace.auth.origins import Origins
from tailrace.clock import Clock
from tailrace.errors import BadParameter, MethodNotAllowed, NotAllowed, NotFound, TailraceError
from tailrace.limits import BROADCAST_BYTES, CABLE_CLOSE_SECONDS, CABLE_FRAME_BYTES
from tailrace.live.follower import Sink
from tailrace.protocols.action_cable.core import broadcasts, event_stream, frames, handshake, pings
from tailrace.protocols.action_cable.core.broadcasts import Disconnect
from tailrace.protocols.action_cable.core.channels import Channels
from tailrace.protocols.action_cable.core.commands import Command
from tailrace.protocols.action_cable.core.publisher import Audience, Publisher
from tailrace.protocols.action_cable.core.session import Session, new_sid
from tailrace.protocols.action_cable.in_process.conversation import Conversation
from tailrace.protocols.action_cable.in_process.event_client import EventClient
from tailrace.protocols.action_cable.in_process.hub import Hub
from tailrace.protocols.action_cable.in_process.socket import Receive, SendMessage, Socket
from tailrace.protocols.action_cable.in_process.stream_follower import Client
from tailrace.settings import Settings
from tailrace.streams import Streams
from tailrace.web.asgi import WRITE_NOW, send_answer
from tailrace.web.endpoint import Endpoint
from tailrace.web.limiter import Limiter, client_key
from tailrace.web.messages import (
    PREFLIGHT_HEADERS,
    Answer,
    RawHeaders,
    Request,
    Response,
    Streaming,
)
from tailrace.web.statuses import error_response


class PingLoop:
    """Pings at the interval of the server, or the one that the client has asked for."""

    def __init__(self, query: Mapping[str, Sequence[str]], interval: float, clock: Clock) -> None:
        self._interval = pings.interval(query, interval)
        self._unit = pings.unit(query)
        self._clock = clock

    async def __call__(self, client: Client) -> None:
        if not self._interval:
            return
        # At random, so that clients that connected together are not pinged together.
        await asyncio.sleep(self._interval * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
        while True:
            client.push(client.encoder.control(pings.ping(self._clock(), self._unit)))
            await asyncio.sleep(self._interval)


EVENT_HEADERS: Final[RawHeaders] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"private, no-cache, no-store, must-revalidate, max-age=0"),
    (b"pragma", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class _Client(NamedTuple):
    """A client that may connect."""

    authorizer: Authorizer
    identity: str | None
    key: str
    """Its key in the rate limiter."""
    token_seconds: float | None
    """Seconds until its token expires."""


class CableServer:
    def __init__(
        self,
        streams: Streams,
        settings: Settings,
        provider: PolicyProvider,
        limiter: Limiter,
        clock: Clock,
        audience: Audience | None = None,
    ) -> None:
        """`audience`: receives broadcasts in place of the hub, if API Gateway keeps the
        connections."""
        self._streams = streams
        self._settings = settings
        self._provider = provider
        self._limiter = limiter
        self._clock = clock
        self._origins = Origins(settings.allowed_origins)
        self._audience = self.hub if audience is None else audience
        self._publisher = Publisher(streams, self._audience, settings)
        self._endpoints = {
            settings.broadcast_path: Endpoint(self._broadcast, self._origins),
            settings.events_path: Endpoint(self._events, self._origins),
        }

    @cached_property
    def hub(self) -> Hub:
        return Hub(self._streams, self._settings)

    async def drain(self) -> None:
        """Tell all clients to reconnect, and wait until that is sent."""
        if "hub" not in self.__dict__:
            return
        for client in self.hub.clients():
            client.end("server_restart", reconnect=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.hub.empty.wait(), CABLE_CLOSE_SECONDS)

    # WebSocket

    async def websocket(
        self, scope: MutableMapping[str, Any], receive: Receive, send: SendMessage
    ) -> None:
        """Serve a WebSocket from the handshake to its end."""
        await receive()
        request = _upgrade_request(scope)
        try:
            if scope["path"] != self._settings.cable_path:
                raise NotFound(f"there is no WebSocket at '{scope['path'][:80]}'")
            handshake.check_origin(request, self._origins)
            authorizer = await self._provider.current()
            connect_request = handshake.authenticate(
                request, authorizer, scope["subprotocols"], self._clock()
            )
            key = client_key(connect_request.identity, request.peer)
            token_seconds = self._remaining(connect_request.expires_at)
            client = _Client(authorizer, connect_request.identity, key, token_seconds)
            if connect_request.reject_reason is None:
                self._limiter.admit(client.key)
        except TailraceError as error:
            await send_answer(error_response(error, request.id), scope, receive, send)
            return
        protocol = frames.choose_protocol(scope["subprotocols"])
        await send({"type": "websocket.accept", "subprotocol": protocol})
        resumable = protocol == frames.EXTENDED and (authorizer.open or client.identity is not None)
        channels = Channels(authorizer, self._settings)
        session = Session(new_sid(), client.identity, channels, resumable=resumable)
        socket = Socket(session.sid, receive, send, scope.get(WRITE_NOW))
        if connect_request.reject_reason is not None:
            await socket.reject(connect_request.reject_reason)
            return
        conversation = Conversation(self.hub, socket, session, client.token_seconds)
        begin = conversation.begin
        if protocol == frames.EXTENDED:
            identifiers = self._restore(request, client)
            if identifiers is not None:
                begin = partial(conversation.resume, identifiers)
        with self._limiter.live(client.key):
            await socket.converse(conversation, begin, self._ping_loop(request))

    def _restore(self, request: Request, client: _Client) -> list[str] | None:
        """The identifiers of the session that a client restores; None: it restores none."""
        session = handshake.session_to_restore(request, client.authorizer, client.identity)
        identifiers = None if session is None else self.hub.restore(*session)
        return None if identifiers is None else list(identifiers)

    # HTTP

    def respond(self, path: str, request: Request) -> Awaitable[Answer]:
        """Answer a request of the broadcast or the events path."""
        return self._endpoints[path].respond(request)

    async def _broadcast(self, request: Request) -> Answer:
        if request.method != "POST":
            raise MethodNotAllowed(request.method, "POST")
        authorizer, now = await self._provider.current(), self._clock()
        credentials = handshake.credentials_of(request, authorizer)
        await authorizer.prepare(credentials, now)
        reason = ""
        # Before the body is read: the errors of a body are for authorized clients only.
        with contextlib.suppress(NotAllowed):
            reason = authorizer.authorize(Operation.BROADCAST, "", credentials, now).reason
        await request.read(min(BROADCAST_BYTES, self._settings.max_body_bytes))
        command = broadcasts.parse(request.body)
        if isinstance(command, Disconnect):
            if reason not in ("open", "broadcast key"):
                authorizer.authorize(Operation.ADMIN, "", credentials, now)
            await self._audience.disconnect_identity(command.identity, reconnect=command.reconnect)
            return Response(201, [])
        subject = None
        for path in {each.path for each in command}:
            subject = authorizer.authorize(Operation.BROADCAST, path, credentials, now).subject
        self._limiter.append(client_key(subject, request.peer))
        await self._publisher.publish(command)
        return Response(201, [])

    async def _events(self, request: Request) -> Answer:
        match request.method:
            case "OPTIONS":
                return Response(204, [*PREFLIGHT_HEADERS])
            case "GET":
                query = request.parameters()
                missed = event_stream.missed_of(query, request.header(b"last-event-id"))
                identifier = event_stream.identifier_of(query)
                commands = [Command("subscribe", identifier, history=missed)]
                encoder = event_stream.RAW if event_stream.is_raw(query) else event_stream.UNWRAPPED
            case "POST":
                await request.read(CABLE_FRAME_BYTES)
                commands = event_stream.commands_of(request.body)
                encoder = event_stream.ENVELOPES
            case _:
                raise MethodNotAllowed(request.method, "GET, POST, OPTIONS")
        authorizer = await self._provider.current()
        token = authorizer.identify(handshake.credentials_of(request, authorizer), self._clock())
        identity, expires_at = (None, None) if token is None else token
        channels = Channels(authorizer, self._settings)
        if channels.authorize(commands[0].identifier) is None:
            raise BadParameter("there is no such channel, or you may not subscribe to it")
        key = client_key(identity, request.peer)
        self._limiter.admit(key)
        session = Session(new_sid(), identity, channels, resumable=False)
        client = EventClient(session.sid, encoder, self._settings.events_lifetime)
        conversation = Conversation(self.hub, client, session, self._remaining(expires_at))

        async def run(sink: Sink) -> None:
            with self._limiter.live(key):
                await client.converse(conversation, commands, self._ping_loop(request), sink)

        return Streaming(200, [*EVENT_HEADERS], run)

    def _remaining(self, expires_at: int | None) -> float | None:
        """Seconds until a token expires; None: never."""
        return None if expires_at is None else (expires_at - self._clock()) / 1000

    def _ping_loop(self, request: Request) -> PingLoop:
        return PingLoop(request.parameters(), self._settings.ping_interval, self._clock)


def _upgrade_request(scope: MutableMapping[str, Any]) -> Request:
    raw_path = scope.get("raw_path") or scope["path"].encode()
    return Request(
        "GET",
        raw_path.decode("latin-1"),
        scope["query_string"].decode("latin-1"),
        [(name.lower(), value) for name, value in scope["headers"]],
        b"",
        peer=(scope.get("client") or ("",))[0],
    )
