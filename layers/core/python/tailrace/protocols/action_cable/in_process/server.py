"""Action Cable as the local server has it: the WebSocket, broadcasts, and server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, Final, NamedTuple

from tailrace.auth.authorizer import Authorizer, Operation, PolicyProvider
from tailrace.auth.origins import Origins
from tailrace.clock import Clock
from tailrace.errors import BadParameter, MethodNotAllowed, NotAllowed, NotFound, TailraceError
from tailrace.limits import BROADCAST_BYTES, CABLE_CLOSE_SECONDS, CABLE_FRAME_BYTES
from tailrace.protocols.action_cable.core import broadcasts, event_stream, frames, handshake
from tailrace.protocols.action_cable.core.broadcasts import Disconnect
from tailrace.protocols.action_cable.core.channels import Channels
from tailrace.protocols.action_cable.core.commands import Command
from tailrace.protocols.action_cable.core.publisher import Audience, Publisher
from tailrace.protocols.action_cable.core.session import Session, new_sid
from tailrace.protocols.action_cable.in_process.conversation import Conversation
from tailrace.protocols.action_cable.in_process.event_client import EventClient
from tailrace.protocols.action_cable.in_process.hub import Hub
from tailrace.protocols.action_cable.in_process.pings import Pings
from tailrace.protocols.action_cable.in_process.socket import (
    Receive,
    SendMessage,
    Socket,
)
from tailrace.settings import Settings
from tailrace.streams import Streams
from tailrace.web.asgi import WRITE_NOW, reject
from tailrace.web.limiter import Limiter, client_key
from tailrace.web.messages import (
    PREFLIGHT_HEADERS,
    RawHeaders,
    Request,
    Response,
    Sink,
    Streaming,
    cors,
)
from tailrace.web.statuses import error_response, internal_error

Answer = Response | Streaming

EVENT_HEADERS: Final[RawHeaders] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"private, no-cache, no-store, must-revalidate, max-age=0"),
    (b"pragma", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

logger = logging.getLogger("tailrace")


class _Guest(NamedTuple):
    """Who wants to come in."""

    authorizer: Authorizer
    identity: str | None
    client: str
    lasting: float | None
    """Seconds until its token ends."""


class Cable:
    def __init__(
        self,
        streams: Streams,
        settings: Settings,
        provider: PolicyProvider,
        limiter: Limiter,
        clock: Clock,
        audience: Audience | None = None,
    ) -> None:
        """`audience`: those whom broadcasts reach, where they are not connected to this process."""
        self._settings = settings
        self._provider = provider
        self._limiter = limiter
        self._clock = clock
        self._origins = Origins(settings.allowed_origins)
        self.hub = Hub(streams, settings)
        self._audience = audience or self.hub
        self._publisher = Publisher(streams, self._audience, settings)
        self._routes: dict[str, Callable[[Request], Awaitable[Answer]]] = {
            settings.broadcast_path: self._broadcast,
            settings.events_path: self._events,
        }

    async def drain(self) -> None:
        """Tell everybody to come back later, and wait until they have heard it."""
        for client in self.hub.clients():
            client.end("server_restart", reconnect=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.hub.empty.wait(), CABLE_CLOSE_SECONDS)

    # WebSocket

    async def websocket(
        self, scope: MutableMapping[str, Any], receive: Receive, send: SendMessage
    ) -> None:
        """From the handshake to the end of a connection."""
        await receive()
        request = _handshake(scope)
        try:
            if scope["path"] != self._settings.cable_path:
                raise NotFound(f"no WebSocket is at '{scope['path'][:80]}'")
            handshake.check_origin(request, self._origins)
            authorizer = await self._provider.current()
            come = handshake.guest(request, authorizer, scope["subprotocols"], self._clock())
            client = client_key(come.identity, request.peer)
            guest = _Guest(authorizer, come.identity, client, self._lasting(come.expires))
            if come.refusal is None:
                self._limiter.admit(guest.client)
        except TailraceError as error:
            await reject(error_response(error, request.id()), scope, send)
            return
        protocol = frames.chosen(scope["subprotocols"])
        await send({"type": "websocket.accept", "subprotocol": protocol})
        resumable = protocol == frames.EXTENDED and (authorizer.open or guest.identity is not None)
        channels = Channels(authorizer, self._settings)
        session = Session(new_sid(), guest.identity, channels, resumable=resumable)
        socket = Socket(session.sid, receive, send, scope.get(WRITE_NOW))
        if come.refusal is not None:
            await socket.refuse(come.refusal)
            return
        conversation = Conversation(self.hub, socket, session, guest.lasting)
        begin = conversation.begin
        if protocol == frames.EXTENDED:
            identifiers = self._recalled(request, guest)
            if identifiers is not None:
                begin = partial(conversation.resume, identifiers)
        with self._limiter.live(guest.client):
            await socket.converse(conversation, begin, self._pings(request))

    def _recalled(self, request: Request, guest: _Guest) -> list[str] | None:
        """The subscriptions of the session that a client wants to resume."""
        wanted = handshake.resumed(request, guest.authorizer, guest.identity)
        found = None if wanted is None else self.hub.recall(*wanted)
        return None if found is None else list(found)

    # HTTP

    async def respond(self, path: str, request: Request) -> Answer:
        """The answer to a request of a path that is one of ours; never an exception."""
        request_id = request.id()
        try:
            answer = await self._routes[path](request)
            answer.headers.append((b"x-request-id", request_id.encode()))
        except TailraceError as error:
            answer = error_response(error, request_id)
        except Exception:
            logger.exception("%s %s failed (%s)", request.method, path, request_id)
            answer = internal_error(request_id)
        answer.headers.extend(cors(self._origins, request.headers.get(b"origin")))
        return answer

    async def _broadcast(self, request: Request) -> Answer:
        if request.method != "POST":
            raise MethodNotAllowed(request.method, "POST")
        authorizer, now = await self._provider.current(), self._clock()
        credentials = handshake.credentials(request, authorizer)
        await authorizer.prepare(credentials, now)
        by = ""
        # Before anything is looked at: strangers are not told what is wrong with a body.
        with contextlib.suppress(NotAllowed):
            by = authorizer.decide(Operation.BROADCAST, "", credentials, now).reason
        await request.read(min(BROADCAST_BYTES, self._settings.max_body_bytes))
        asked = broadcasts.parse(request.body)
        if isinstance(asked, Disconnect):
            if by not in ("open", "broadcast key"):
                authorizer.decide(Operation.ADMIN, "", credentials, now)
            await self._audience.expel(asked.identity, reconnect=asked.reconnect)
            return Response(201, [])
        subject = None
        for path in {each.path for each in asked}:
            subject = authorizer.decide(Operation.BROADCAST, path, credentials, now).subject
        self._limiter.append(client_key(subject, request.peer))
        await self._publisher.publish(asked)
        return Response(201, [])

    async def _events(self, request: Request) -> Answer:
        match request.method:
            case "OPTIONS":
                return Response(204, [*PREFLIGHT_HEADERS])
            case "GET":
                query = request.parameters()
                history = event_stream.history_of(query, request.header(b"last-event-id"))
                identifier = event_stream.identifier_of(query)
                commands = [Command("subscribe", identifier, history=history)]
                encoder = event_stream.RAW if event_stream.is_raw(query) else event_stream.UNWRAPPED
            case "POST":
                await request.read(CABLE_FRAME_BYTES)
                commands = event_stream.commands_of(request.body)
                encoder = event_stream.ENVELOPES
            case _:
                raise MethodNotAllowed(request.method, "GET, POST, OPTIONS")
        authorizer = await self._provider.current()
        found = authorizer.identify(handshake.credentials(request, authorizer), self._clock())
        identity, expires = (None, None) if found is None else found
        channels = Channels(authorizer, self._settings)
        if channels.admit(commands[0].identifier) is None:
            raise BadParameter("there is no such channel, or it is not for you")
        client = client_key(identity, request.peer)
        self._limiter.admit(client)
        session = Session(new_sid(), identity, channels, resumable=False)
        listener = EventClient(session.sid, encoder, self._settings.events_lifetime)
        conversation = Conversation(self.hub, listener, session, self._lasting(expires))

        async def run(sink: Sink) -> None:
            with self._limiter.live(client):
                await listener.converse(conversation, commands, self._pings(request), sink)

        return Streaming(200, [*EVENT_HEADERS], run)

    def _lasting(self, expires: int | None) -> float | None:
        return None if expires is None else (expires - self._clock()) / 1000

    def _pings(self, request: Request) -> Pings:
        return Pings(request.parameters(), self._settings.ping_interval, self._clock)


def _handshake(scope: MutableMapping[str, Any]) -> Request:
    raw_path = scope.get("raw_path") or scope["path"].encode()
    return Request(
        "GET",
        raw_path.decode("latin-1"),
        scope["query_string"].decode("latin-1"),
        [(name.lower(), value) for name, value in scope["headers"]],
        b"",
        peer=(scope.get("client") or ("",))[0],
    )
