"""The requests of Action Cable: WebSockets, broadcasts, and server-sent events.

On AWS, API Gateway keeps the WebSockets. There this serves broadcasts to an `Audience` of its
connections, without a hub, and server-sent events with a hub for the connections of one function.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from tailrace import metrics
from tailrace.auth.authorizer import Authorizer, Operation, PolicyProvider
from tailrace.auth.keys import Keys
from tailrace.auth.origins import Origins
from tailrace.clock import Clock
from tailrace.errors import (
    BadParameter,
    BadRequest,
    MethodNotAllowed,
    NotAllowed,
    NotFound,
    TailraceError,
)
from tailrace.limits import BROADCAST_BYTES, CABLE_CLOSE_SECONDS, CABLE_FRAME_BYTES
from tailrace.live.follower import Sink
from tailrace.protocols.action_cable.core import broadcasts, event_stream, frames, handshake, pings
from tailrace.protocols.action_cable.core.application import ApplicationSession
from tailrace.protocols.action_cable.core.broadcasts import Disconnect, Publication
from tailrace.protocols.action_cable.core.channels import Channels, path_of
from tailrace.protocols.action_cable.core.commands import Command
from tailrace.protocols.action_cable.core.publisher import Audience, Publisher
from tailrace.protocols.action_cable.core.session import EarlierSession, Session, new_sid
from tailrace.protocols.action_cable.in_process.conversation import Conversation
from tailrace.protocols.action_cable.in_process.event_client import EventClient
from tailrace.protocols.action_cable.in_process.hub import Hub
from tailrace.protocols.action_cable.in_process.socket import (
    Receive,
    SendMessage,
    Socket,
    no_room,
)
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

EVENT_HEADERS: Final[RawHeaders] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"private, no-cache, no-store, must-revalidate, max-age=0"),
    (b"pragma", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


_LIST_HEADERS: Final[RawHeaders] = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
]

_MEMBERS: Final = re.compile(r"/presence/(.+)/users", re.DOTALL)


class _Opened(NamedTuple):
    """A WebSocket whose handshake is complete."""

    key: str
    """The client's key in the rate limiter."""
    socket: Socket
    conversation: Conversation
    begin: Callable[[], Awaitable[None]]


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
        self._api_endpoint = Endpoint(self._call_api, self._origins)

    @property
    def audience(self) -> Audience:
        """The subscribers of broadcasts."""
        return self._audience

    @cached_property
    def hub(self) -> Hub:
        application = None
        if self._settings.rpc_url:
            # Imported here: functions on AWS do not have its packages.
            from tailrace.protocols.action_cable.in_process.application_client import (
                ApplicationClient,
            )

            key = next(iter(Keys.from_settings(self._settings).rpc), None)
            application = ApplicationClient(self._settings, key)
        hub = Hub(self._streams, self._settings, application)
        metrics.gauges["clients_num"] = lambda: len(hub.clients())
        metrics.gauges["clients_uniq_num"] = hub.count_identities
        metrics.gauges["broadcast_streams_num"] = lambda: len(hub.followers)
        return hub

    async def drain(self) -> None:
        """Tell all clients to reconnect, and wait until that is sent."""
        if "hub" not in self.__dict__:
            return
        for client in self.hub.clients():
            client.end("server_restart", reconnect=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.hub.empty.wait(), CABLE_CLOSE_SECONDS)
        if self.hub.application is not None:
            await self.hub.application.close()

    # WebSocket

    async def websocket(
        self, scope: MutableMapping[str, Any], receive: Receive, send: SendMessage
    ) -> None:
        """Serve a WebSocket from the handshake to its end."""
        await receive()
        request = _upgrade_request(scope)
        try:
            opened = await self._open(request, scope, receive, send)
        except TailraceError as error:
            metrics.count("failed_auths_total")
            await send_answer(error_response(error, request.id), scope, receive, send)
            return
        if opened is None:
            metrics.count("failed_auths_total")
            return
        # The connection may last for days: what only its handshake needed is freed.
        scope.clear()
        del request
        with self._limiter.live(opened.key):
            await opened.socket.converse(opened.conversation, opened.begin)

    async def _open(
        self,
        request: Request,
        scope: MutableMapping[str, Any],
        receive: Receive,
        send: SendMessage,
    ) -> _Opened | None:
        """Answer a handshake; None: the client was rejected."""
        if scope["path"] != self._settings.cable_path:
            raise NotFound(f"there is no WebSocket at '{scope['path'][:80]}'")
        handshake.check_origin(request, self._origins)
        if self._settings.rpc_url and not self._settings.allowed_origins:
            handshake.check_same_site(request)
        authorizer, offered = await self._provider.current(), scope["subprotocols"]
        client = handshake.authenticate(request, authorizer, offered, self._clock())
        key = client_key(client.identity, request.peer)
        if client.reject_reason is None:
            self._limiter.admit(key)
        protocol = frames.choose_protocol(offered)
        await send({"type": "websocket.accept", "subprotocol": protocol})
        extended = protocol == frames.EXTENDED
        write_now = scope.get(WRITE_NOW, no_room)
        socket = Socket(new_sid(), receive, send, write_now, extended=extended)
        if client.reject_reason is not None:
            await socket.reject(client.reject_reason)
            return None
        application = self._application_session(request, scope, client.identity)
        has_identity = authorizer.open or client.identity is not None or application is not None
        channels = Channels(authorizer, self._settings)
        session = Session(
            socket.sid, client.identity, channels, application, resumable=extended and has_identity
        )
        conversation = self._conversation(request, socket, session, client.expires_at)
        sid = handshake.sid_to_restore(request) if extended else None
        begin = partial(conversation.begin, partial(self._restore, sid, authorizer))
        return _Opened(key, socket, conversation, begin)

    def _application_session(
        self, request: Request, scope: MutableMapping[str, Any], identity: str | None
    ) -> ApplicationSession | None:
        """None: there is no application to call."""
        if not self._settings.rpc_url:
            return None
        scheme = "https" if scope.get("scheme") == "wss" else "http"
        query = f"?{request.query}" if request.query else ""
        url = f"{scheme}://{request.header(b'host') or ''}{request.raw_path}{query}"
        names = self._settings.rpc_headers.lower().replace(",", " ").split()
        headers = {name: request.header(name.encode()) for name in names}
        sent = {name: value for name, value in headers.items() if value is not None}
        return ApplicationSession(url, {**sent, "REMOTE_ADDR": request.peer}, identity or "")

    def _restore(
        self, sid: str | None, authorizer: Authorizer, identity: str | None
    ) -> EarlierSession | None:
        """The session that a client resumes; None: it resumes none."""
        session = handshake.session_to_restore(sid, authorizer, identity)
        return None if session is None else self.hub.restore(*session)

    # HTTP

    def respond(self, path: str, request: Request) -> Awaitable[Answer]:
        """Answer a request of the broadcast or the events path, or of the REST API."""
        return self._endpoints.get(path, self._api_endpoint).respond(request)

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
        command = await self._read_command(request)
        subject = None
        if not isinstance(command, Disconnect):
            for path in {each.path for each in command}:
                subject = authorizer.authorize(Operation.BROADCAST, path, credentials, now).subject
        elif reason not in ("open", "broadcast key"):
            authorizer.authorize(Operation.ADMIN, "", credentials, now)
        return await self._execute(command, client_key(subject, request.peer))

    async def _read_command(self, request: Request) -> Sequence[Publication] | Disconnect:
        await request.read(min(BROADCAST_BYTES, self._settings.max_body_bytes))
        try:
            return broadcasts.parse(request.body)
        except BadRequest:
            metrics.count("failed_broadcast_msg_total")
            raise

    async def _execute(self, command: Sequence[Publication] | Disconnect, key: str) -> Answer:
        """`key`: the key of the client in the rate limiter."""
        if isinstance(command, Disconnect):
            await self._audience.disconnect_identity(command.identity, reconnect=command.reconnect)
        else:
            self._limiter.append(key)
            await self._publisher.publish(command)
            metrics.count("broadcast_msg_total", by=len(command))
        return Response(201, [])

    async def _call_api(self, request: Request) -> Answer:
        """Answer a request of AnyCable's REST API."""
        authorizer, now = await self._provider.current(), self._clock()
        if not authorizer.keys.api:
            raise NotFound("the REST API is disabled: set TAILRACE_SECRET or TAILRACE_API_SECRET")
        credentials = handshake.credentials_of(request, authorizer)
        await authorizer.prepare(credentials, now)
        subject = authorizer.authorize(Operation.API, "", credentials, now).subject
        path = unquote(request.raw_path).removeprefix(self._settings.api_path)
        is_publish, members_of = path == "/publish", _MEMBERS.fullmatch(path)
        if not is_publish and members_of is None:
            raise NotFound("the REST API has /publish and /presence/{stream}/users")
        method = "POST" if members_of is None else "GET"
        if request.method != method:
            raise MethodNotAllowed(request.method, method)
        if members_of is None:
            command = await self._read_command(request)
            return await self._execute(command, client_key(subject, request.peer))
        stream = members_of[1]
        members = await self._audience.members(stream, path_of(stream))
        return Response(200, [*_LIST_HEADERS], members.encode())

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

        async def run(sink: Sink) -> None:
            client = EventClient(session.sid, encoder, sink, self._settings.events_lifetime)
            conversation = self._conversation(request, client, session, expires_at)
            with self._limiter.live(key):
                await client.converse(conversation, commands)

        return Streaming(200, [*EVENT_HEADERS], run)

    def _conversation(
        self, request: Request, client: Client, session: Session, expires_at: int | None
    ) -> Conversation:
        """`expires_at`: when the client's token expires, in milliseconds; None: never."""
        seconds = None if expires_at is None else (expires_at - self._clock()) / 1000
        chosen = pings.asked_for(request.parameters(), self._settings.ping_interval)
        return Conversation(self.hub, client, session, chosen, seconds)


def _upgrade_request(scope: MutableMapping[str, Any]) -> Request:
    raw_path = scope.get("raw_path") or scope["path"].encode()
    return Request(
        "GET",
        raw_path.decode("latin-1"),
        scope["query_string"].decode("latin-1"),
        scope["headers"],
        b"",
        peer=(scope.get("client") or ("",))[0],
    )
