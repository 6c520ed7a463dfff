"""The stream routes: every method of `/v1/stream/{path}`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from tailrace.auth.hosts import LocalHosts
from tailrace.auth.origins import Origins
from tailrace.errors import (
    BadOffset,
    BadParameter,
    BadRequest,
    MethodNotAllowed,
    OffsetTrimmed,
    StreamGone,
    StreamNotFound,
)
from tailrace.live.follower import Sink
from tailrace.log import offsets
from tailrace.log.content import Mode, join_bodies
from tailrace.log.expiry import format_instant
from tailrace.log.quota import Quota
from tailrace.log.retention import Retention
from tailrace.protocols.durable_streams import caching, compress, sse
from tailrace.protocols.durable_streams.caching import (
    NO_STORE,
    apply_cache_policy,
    cache_tag,
    etag,
    matches,
    next_cursor,
)
from tailrace.protocols.durable_streams.parse import parse_append, parse_create, refuse_encoding
from tailrace.protocols.durable_streams.sse_readers import SseReader, SseReaders
from tailrace.settings import Settings
from tailrace.streams import Streams, View
from tailrace.web.authorize import RequestAuthorizer
from tailrace.web.endpoint import Endpoint
from tailrace.web.limiter import Limiter, client_key
from tailrace.web.messages import (
    METHODS,
    PREFLIGHT_HEADERS,
    READ_METHODS,
    Answer,
    RawHeaders,
    Request,
    Response,
    Streaming,
)
from tailrace.web.paths import stream_path

_CLOSED: Final = (b"stream-closed", b"true")
_UP_TO_DATE: Final = (b"stream-up-to-date", b"true")
SANDBOX: Final = (b"content-security-policy", b"sandbox")
"""A web page in a stream comes from a writer and must not act as the server's origin."""
_VARY: Final = (b"vary", b"accept-encoding")


class StreamRoutes:
    def __init__(
        self,
        streams: Streams,
        settings: Settings,
        authorizer: RequestAuthorizer,
        limiter: Limiter,
        origins: Origins,
        hosts: LocalHosts | None,
    ) -> None:
        """`hosts`: the only hosts whose requests are answered; None: any."""
        self.respond = Endpoint(self._answer, origins, hosts).respond
        self._streams = streams
        self._authorizer = authorizer
        self._limiter = limiter
        self._quota = Quota.parse(settings.streams_per_prefix)
        self._public_url = settings.public_url.rstrip("/")
        self._poll_seconds = settings.long_poll_timeout
        self._cold_seconds = settings.cold_max_age
        self._retention = Retention.parse(settings.retention)
        self._sse_seconds = settings.sse_lifetime
        self._sse_readers = SseReaders(streams, settings.sse_keep_alive)
        self._compress_bytes = settings.compress_bytes
        self._max_body_bytes = settings.max_body_bytes
        self._compressor = compress.Compressor()
        self._methods: dict[str, Callable[[Request, str], Awaitable[Answer]]] = {
            "GET": self._get,
            "HEAD": self._head,
        }
        self._allowed = READ_METHODS
        if not settings.read_only:
            self._methods |= {"PUT": self._put, "POST": self._post, "DELETE": self._delete}
            self._allowed = METHODS

    async def _answer(self, request: Request) -> Answer:
        if request.method == "OPTIONS":
            return Response(204, [*PREFLIGHT_HEADERS])
        method = self._methods.get(request.method)
        if method is None:
            raise MethodNotAllowed(request.method, self._allowed)
        path = stream_path(request.raw_path)
        decision = await self._authorizer.stream(request, path)
        request.client = client_key(decision.subject, request.peer)
        answer = await method(request, path)
        return answer._replace(headers=apply_cache_policy(answer.headers, decision))

    # Writing

    async def _put(self, request: Request, path: str) -> Answer:
        refuse_encoding(request)
        await request.read(self._max_body_bytes)
        create = parse_create(request)
        self._limiter.append(request.client)
        await self._quota.check(path, self._streams.list)
        created = await self._streams.create(path, create)
        headers: RawHeaders = [
            (b"content-type", created.stream.config.content_type.encode("latin-1")),
            (b"stream-next-offset", created.state.next_offset.encode()),
        ]
        if created.state.closed:
            headers.append(_CLOSED)
        if created.new:
            headers.append((b"location", self._location(request)))
        return Response(201 if created.new else 200, headers)

    async def _post(self, request: Request, path: str) -> Answer:
        refuse_encoding(request)
        await request.read(self._max_body_bytes)
        append = parse_append(request)
        self._limiter.append(request.client)
        accepted = await self._streams.append(path, append)
        headers: RawHeaders = [(b"stream-next-offset", accepted.state.next_offset.encode())]
        if accepted.state.end is not None:
            headers.append(_CLOSED)
        if append.producer is None or accepted.producer_seq is None:
            return Response(204, headers)
        headers.append((b"producer-epoch", b"%d" % append.producer.epoch))
        headers.append((b"producer-seq", b"%d" % accepted.producer_seq))
        return Response(200 if accepted.entry and append.body else 204, headers)

    async def _delete(self, _: Request, path: str) -> Answer:
        await self._streams.delete(path)
        return Response(204, [])

    def _location(self, request: Request) -> bytes:
        host = request.header(b"host") or "localhost"
        base = self._public_url or f"{request.scheme}://{host}"
        return f"{base}{request.raw_path}".encode("latin-1")

    # Reading

    async def _head(self, _: Request, path: str) -> Answer:
        tail = await self._streams.find(path)
        state, config = tail.committed, tail.stream.config
        headers: RawHeaders = [
            (b"content-type", config.content_type.encode("latin-1")),
            (b"stream-next-offset", state.next_offset.encode()),
            NO_STORE,
        ]
        if config.ttl is not None:
            headers.append((b"stream-ttl", b"%d" % config.ttl))
        if config.expires_at is not None:
            headers.append((b"stream-expires-at", format_instant(config.expires_at).encode()))
        if state.closed:
            headers.append(_CLOSED)
        return Response(200, headers)

    async def _get(self, request: Request, path: str) -> Answer:
        parameters = request.parameters()
        live = parameters.get("live", [""])[-1]
        try:
            position = _position(parameters.get("offset"), live)
            if live not in ("", "long-poll", "sse"):
                raise BadParameter(f"live must be long-poll or sse, not '{live[:40]}'")
        except BadRequest:
            # A missing stream is reported first: 404, not 400.
            await self._streams.access(path)
            raise
        view = await self._streams.view(path, position)
        if not live:
            return await self._catch_up(request, view, position)
        cursor = parameters.get("cursor", [""])[-1]
        self._limiter.admit(request.client)
        if live == "long-poll":
            return await self._long_poll(request, view, cursor)
        return self._sse(request, view, cursor)

    async def _catch_up(self, request: Request, view: View, position: int) -> Answer:
        headers = _view_headers(view)
        if position == offsets.NOW:
            mode = view.tail.stream.config.mode
            headers += [NO_STORE, SANDBOX]
            return Response(200, headers, join_bodies(mode, view.bodies))
        # Retention has moved the beginning of the stream once and will move it again.
        moves = position == offsets.BEGINNING and view.start > 0
        committed = (view.closed or not view.up_to_date) and not moves
        value = self._chunk_caching(view) if committed else caching.TAIL
        headers.append((b"cache-control", value))
        return await self._data(request, view, headers)

    def _chunk_caching(self, view: View) -> bytes:
        """How long a chunk may be cached: no longer than the stream lives, and briefly if retention
        may delete it, since a cached chunk must not point to a deleted next one."""
        config = view.tail.stream.config
        seconds = caching.CHUNK_SECONDS
        if view.cold and self._retention.keep(view.tail.stream.path) is None:
            seconds = max(seconds, self._cold_seconds)
        if config.ttl is None and config.expires_at is None:
            return caching.CHUNK % seconds
        left = float(seconds)
        if config.ttl is not None:
            left = min(left, config.ttl)
        if config.expires_at is not None:
            left = min(left, (config.expires_at - self._streams.clock()) / 1000)
        return b"public, max-age=%d" % max(0, left)

    async def _long_poll(self, request: Request, view: View, cursor: str) -> Answer:
        if not view.bodies and view.closed:
            self._limiter.check_closed_poll(request.client, view.tail.stream.path)
        elif not view.bodies:
            with self._limiter.live(request.client):
                view = await self._streams.follow(view.tail, view.end, self._poll_seconds)
        headers = _view_headers(view)
        headers.append((b"cache-control", caching.LIVE))
        headers.append((b"stream-cursor", b"%d" % next_cursor(cursor, self._streams.clock())))
        if not view.bodies:
            # All but the content type: there is no content.
            return Response(204, headers[1:])
        return await self._data(request, view, headers)

    async def _data(self, request: Request, view: View, headers: RawHeaders) -> Response:
        """Answer with the body and its ETag, compressed if the client accepts that; or with 304."""
        config = view.tail.stream.config
        body = join_bodies(config.mode, view.bodies)
        encoding = ""
        if self._compress_bytes and compress.is_compressible(config.content_type):
            headers.append(_VARY)
            if len(body) >= self._compress_bytes:
                encoding = compress.choose_encoding(request.header(b"accept-encoding") or "")
        tag = etag(
            view.tail.stream.id,
            view.start,
            view.end,
            tail=view.up_to_date,
            closed=view.closed,
            encoding=encoding,
        )
        headers += [(b"etag", tag.encode()), SANDBOX]
        condition = request.header(b"if-none-match")
        if condition is not None and matches(condition, tag):
            return Response(304, headers)
        if encoding:
            body = await self._compressor.compress(body, encoding, tag)
            headers.append((b"content-encoding", encoding.encode()))
        return Response(200, headers, body)

    def _sse(self, request: Request, view: View, cursor: str) -> Streaming:
        headers: RawHeaders = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
        ]
        if view.tail.stream.config.mode is Mode.BYTES:
            headers.append((b"stream-sse-data-encoding", b"base64"))
        return Streaming(200, headers, partial(self._live, request.client, view, cursor))

    async def _live(self, client: str, view: View, client_cursor: str, sink: Sink) -> None:
        with self._limiter.live(client):
            await self._events(view, client_cursor, sink)

    async def _events(self, view: View, client_cursor: str, sink: Sink) -> None:
        """Send data as it is appended, until the stream or the lifetime of the response ends."""
        streams = self._streams
        cursor = next_cursor(client_cursor, streams.clock())
        deadline = time.monotonic() + self._sse_seconds
        reader = SseReader(sink, view.tail, view.end, cursor, deadline)
        await sse.send(sink, view, cursor)
        while not view.closed:
            reader.slot = view.end
            await sink.drain()
            if streams.draining or time.monotonic() >= deadline:
                return
            if view.up_to_date and await self._sse_readers.attend(view.tail, reader):
                return
            try:
                view = await streams.follow(view.tail, reader.slot, 0)
            except (StreamNotFound, StreamGone, OffsetTrimmed):
                return
            if view.bodies or view.closed:
                cursor = max(cursor, next_cursor(None, streams.clock()))
                await sse.send(sink, view, cursor)


def _position(values: list[str] | None, live: str) -> int:
    if values is None:
        if live:
            raise BadOffset("a live read needs an offset: -1, now, or a Stream-Next-Offset")
        return offsets.BEGINNING
    if len(values) > 1:
        raise BadOffset("offset was given more than once")
    return offsets.parse_position(values[0])


def _view_headers(view: View) -> RawHeaders:
    headers: RawHeaders = [
        (b"content-type", view.tail.stream.config.content_type.encode("latin-1")),
        (b"stream-next-offset", view.next_offset.encode()),
        (b"cache-tag", cache_tag(view.tail.stream.id).encode()),
    ]
    if view.up_to_date:
        headers.append(_UP_TO_DATE)
    if view.closed:
        headers.append(_CLOSED)
    return headers
