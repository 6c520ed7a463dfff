"""The stream routes: every method of `/v1/stream/{path}`."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tailrace import metrics
from tailrace.auth.origins import LocalHosts, Origins
from tailrace.errors import (
    BadRequest,
    MethodNotAllowed,
    StreamNotFound,
)
from tailrace.limits import (
    COMPRESS_BYTES,
    HISTORY_CACHE_SECONDS,
    LIVE_CACHE_SECONDS,
)
from tailrace.log import offsets
from tailrace.log.content import join_bodies
from tailrace.log.expiry import format_instant, is_purged
from tailrace.log.offsets import Position
from tailrace.log.quota import Quota
from tailrace.log.retention import Retention
from tailrace.protocols.durable_streams import caching, compress, missing
from tailrace.protocols.durable_streams.caching import (
    NO_STORE,
    append_tag,
    apply_cache_policy,
    cache_tag,
    etag,
    matches,
    next_cursor,
)
from tailrace.protocols.durable_streams.joined_bodies import Joined, JoinedBodies, join
from tailrace.protocols.durable_streams.missing import MissingStreams
from tailrace.protocols.durable_streams.parse import parse_append, parse_create, refuse_encoding
from tailrace.protocols.durable_streams.plain_read import PlainReads
from tailrace.protocols.durable_streams.read_start import (
    ReadStart,
    parse_live,
    parse_start,
    read_from,
)
from tailrace.protocols.durable_streams.sse_responses import SseResponses
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
)
from tailrace.web.urls import StreamUrls

logger = logging.getLogger("tailrace")

_CLOSED: Final = (b"stream-closed", b"true")
_UP_TO_DATE: Final = (b"stream-up-to-date", b"true")
SANDBOX: Final = (b"content-security-policy", b"sandbox")
"""A web page in a stream comes from a writer and must not act as the server's origin."""
_VARY: Final = (b"vary", b"accept-encoding")

_READS = ("ds_requests_total",)


class StreamRoutes:
    def __init__(
        self,
        streams: Streams,
        settings: Settings,
        urls: StreamUrls,
        authorizer: RequestAuthorizer,
        limiter: Limiter,
        origins: Origins,
        hosts: LocalHosts | None,
        missing_streams: MissingStreams,
        *,
        compresses: bool = True,
    ) -> None:
        """`hosts`: the only hosts whose requests are answered; None: any.
        `compresses`: whether bodies are compressed here, and not by a cache in front."""
        self.respond = Endpoint(self._answer, origins, hosts).respond
        self._streams = streams
        self._urls = urls
        self._missing = missing_streams
        self._authorizer = authorizer
        self._limiter = limiter
        self._quota = Quota.parse(settings.streams_per_prefix)
        self._public_url = settings.public_url.rstrip("/")
        self._poll_seconds = settings.long_poll_timeout
        self._cursor_seconds = settings.cursor_interval
        self._retention = Retention.parse(settings.retention)
        self._sse = SseResponses(streams, settings, limiter, missing_streams)
        self._compresses = compresses
        self._max_body_bytes = settings.max_body_bytes
        self._joined = JoinedBodies()
        self.plain_reads: PlainReads | None = None
        """Keeps answers, if a server asks it for them."""
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
        path = self._urls.parse(request.raw_path)
        decision = await self._authorizer.stream(request, path)
        request.client = client_key(decision.subject, request.peer)
        answer = await method(request, path)
        return answer._replace(headers=apply_cache_policy(answer.headers, decision))

    # Writing

    async def _put(self, request: Request, path: str) -> Answer:
        refuse_encoding(request)
        await request.read(self._max_body_bytes)
        create = parse_create(request, self._urls)
        self._limiter.append(request.client)
        await self._quota.check(path, self._streams.list)
        created = await self._streams.create(path, create)
        headers: RawHeaders = [
            (b"content-type", created.stream.config.content_type.encode("latin-1")),
            (b"stream-next-offset", created.next_offset.encode()),
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
        headers: RawHeaders = [(b"stream-next-offset", accepted.next_offset.encode())]
        if accepted.is_end:
            # Otherwise the client's next append would overlook what others have appended.
            headers.append((b"etag", append_tag(accepted.next_offset)))
        if accepted.closed:
            headers.append(_CLOSED)
        if append.producer is None or accepted.producer_seq is None:
            return Response(204, headers)
        headers.append((b"producer-epoch", b"%d" % append.producer.epoch))
        headers.append((b"producer-seq", b"%d" % accepted.producer_seq))
        return Response(200 if accepted.new and append.body else 204, headers)

    async def _delete(self, _: Request, path: str) -> Answer:
        await self._streams.delete(path)
        return Response(204, [])

    def _location(self, request: Request) -> bytes:
        host = request.header(b"host") or "localhost"
        base = self._public_url or f"{request.scheme}://{host}"
        return f"{base}{request.raw_path}".encode("latin-1")

    # Reading

    async def _head(self, request: Request, path: str) -> Answer:
        try:
            tail = await self._streams.find(path)
        except StreamNotFound:
            if not self._urls.reads_missing(request.raw_path):
                raise
            return Response(200, [*missing.HEADERS, NO_STORE])
        state, config = tail.committed, tail.stream.config
        headers: RawHeaders = [
            (b"content-type", config.content_type.encode("latin-1")),
            (b"stream-next-offset", state.next_offset(config.epoch).encode()),
            (b"stream-earliest-offset", (await self._streams.earliest_offset(tail)).encode()),
            (b"stream-last-written-at", format_instant(state.written_at).encode()),
            (b"etag", append_tag(state.next_offset(config.epoch))),
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
        may_be_missing = self._urls.reads_missing(request.raw_path)
        try:
            live = parse_live(parameters)
            event_id = request.header(b"last-event-id") if live == "sse" else None
            start = parse_start(parameters, event_id, live=bool(live), lenient=may_be_missing)
        except BadRequest:
            # A missing stream is reported first: 404, not 400.
            if not may_be_missing:
                await self._streams.access(path)
            raise
        cursor = parameters.get("cursor", [""])[-1]
        if live:
            self._limiter.admit(request.client)
        try:
            view = await read_from(self._streams, path, start)
        except StreamNotFound:
            if not may_be_missing:
                raise
            metrics.counts[_READS] += 1
            return await self._read_missing(request, path, live, start, cursor)
        metrics.counts[_READS] += 1
        if not live:
            return await self._catch_up(request, view, start, cursor)
        if live == "long-poll":
            return await self._long_poll(request, view, start, cursor, self._poll_seconds)
        if event_id and view.closed and not view.bodies:
            # A browser whose stream has ended would connect again and again; 204 stops it.
            return Response(204, [*_view_headers(view)[1:], NO_STORE])
        metrics.count("ds_sse_requests_total")
        return self._sse.read(request, view, start, cursor)

    async def _read_missing(
        self, request: Request, path: str, live: str, start: ReadStart, cursor: str
    ) -> Answer:
        """Answer a read of a stream that does not exist yet."""
        missing.check_start(start)
        next_ = self._next_cursor(cursor)
        headers = [*missing.HEADERS, (b"stream-cursor", b"%d" % next_)]
        if not live:
            return Response(200, [*headers, NO_STORE], missing.BODY)
        if live == "sse":
            metrics.count("ds_sse_requests_total")
            return await self._sse.read_missing(request, path, start, cursor)
        deadline = time.monotonic() + self._poll_seconds
        release = await self._missing.admit(request.client, self._poll_seconds)
        try:
            with self._polling(request):
                exists = await self._missing.wait(path, request.client, self._poll_seconds)
        finally:
            await release()
        if not exists:
            # All but the content type: there is no content. A cache gives it to all that waited.
            return Response(204, [*headers[1:], (b"cache-control", caching.LIVE)])
        view = await self._streams.read(path, Position(offsets.BEGINNING))
        left = max(0, deadline - time.monotonic())
        return await self._long_poll(request, view, start, cursor, left)

    async def _catch_up(
        self, request: Request, view: View, start: ReadStart, cursor: str
    ) -> Answer:
        headers = _view_headers(view)
        headers.append((b"stream-cursor", b"%d" % self._next_cursor(cursor)))
        if not isinstance(start, Position) or start.slot == offsets.NOW:
            mode = view.tail.stream.config.mode
            headers += [NO_STORE, SANDBOX]
            return Response(200, headers, join_bodies(mode, view.bodies))
        joined = self._joined.join(view)
        moves = _moves(start, joined.start_size)
        committed = (view.closed or not view.up_to_date) and not moves
        value = self._chunk_caching(view, start) if committed else caching.TAIL
        headers.append((b"cache-control", value))
        response = await self._data(request, view, joined, headers)
        if self.plain_reads is not None:
            self.plain_reads.keep(request, view, response)
        return response

    def _chunk_caching(self, view: View, start: Position) -> bytes:
        """How long a chunk may be cached: no longer than the stream lives, and briefly if retention
        may delete it, since a cached chunk must not point to a deleted next one. For a moment only
        if nothing purges it, and readers could take it for data of the next stream of that name."""
        config = view.tail.stream.config
        seconds = caching.CHUNK_SECONDS
        # A fork may have cold chunks of its source, without having been archived itself.
        cold = view.cold and config.fork is None
        if cold and self._retention.keep(view.tail.stream.path) is None:
            seconds = HISTORY_CACHE_SECONDS
        left = self._lifetime(view)
        if left is None:
            return caching.CHUNK % seconds
        if caching.is_ambiguous(start, config) and not is_purged(config, complete=True, cold=cold):
            seconds = caching.LIVE_SECONDS
        return b"public, max-age=%d" % min(seconds, left)

    def _lifetime(self, view: View) -> float | None:
        """For how many seconds a stream certainly lives on; None: no end is known."""
        config = view.tail.stream.config
        ends = [] if config.ttl is None else [float(config.ttl)]
        if config.expires_at is not None:
            ends.append((config.expires_at - self._streams.clock()) / 1000)
        return max(0.0, min(ends)) if ends else None

    async def _long_poll(
        self, request: Request, view: View, start: ReadStart, cursor: str, seconds: float
    ) -> Answer:
        if not view.bodies and view.closed:
            self._limiter.check_closed_poll(request.client, view.tail.stream.path)
        elif not view.bodies:
            with self._polling(request):
                view = await self._streams.follow(view.tail, view.end, seconds)
        return await self.answer_poll(request, view, start, cursor)

    async def answer_poll(
        self, request: Request, view: View, start: ReadStart, cursor: str
    ) -> Response:
        """Answer a long-poll with what there is after its wait."""
        # At the tail, too: a thousand readers that begin there become one request.
        is_shared = isinstance(start, Position)
        headers = _view_headers(view)
        headers.append((b"stream-cursor", b"%d" % self._next_cursor(cursor)))
        if not view.bodies:
            headers.append((b"cache-control", caching.LIVE) if is_shared else NO_STORE)
            # All but the content type: there is no content.
            return Response(204, headers[1:])
        joined = self._joined.join(view) if is_shared else join(view)
        headers.append(
            (b"cache-control", self._poll_caching(view, joined.start_size, start))
            if isinstance(start, Position)
            else NO_STORE
        )
        return await self._data(request, view, joined, headers)

    @contextmanager
    def _polling(self, request: Request) -> Iterator[None]:
        """Count a long-poll while it waits."""
        metrics.count("ds_poll_requests_total")
        with self._limiter.live(request.client), metrics.level("ds_poll_clients_num"):
            yield

    def _poll_caching(self, view: View, start_size: int, start: Position) -> bytes:
        """How long a long-poll may be cached: longer if it is the data that follows an offset."""
        if _moves(start, start_size) or caching.is_ambiguous(start, view.tail.stream.config):
            return caching.LIVE
        left = self._lifetime(view)
        seconds = LIVE_CACHE_SECONDS if left is None else min(LIVE_CACHE_SECONDS, left)
        return caching.LIVE_DATA % max(1, seconds)

    async def _data(
        self, request: Request, view: View, joined: Joined, headers: RawHeaders
    ) -> Response:
        """Answer with the body and its ETag, compressed if the client accepts that; or with 304."""
        config = view.tail.stream.config
        body, start_size = joined
        encoding = ""
        if self._compresses and compress.is_compressible(config.content_type):
            headers.append(_VARY)
            if len(body) >= COMPRESS_BYTES:
                encoding = compress.choose_encoding(request.header(b"accept-encoding") or "")
        tag = etag(
            view.tail.stream.id,
            start_size,
            view.size,
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

    def _next_cursor(self, held: str | None) -> int:
        return next_cursor(held, self._streams.clock(), self._cursor_seconds)


def _moves(start: ReadStart, start_size: int) -> bool:
    """Whether the same read may find other data later; `start_size`: that before what it found."""
    if not isinstance(start, Position) or start.slot == offsets.NOW:
        return True
    # Retention has moved the beginning of the stream once and will move it again.
    return start == Position(offsets.BEGINNING) and start_size > 0


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
