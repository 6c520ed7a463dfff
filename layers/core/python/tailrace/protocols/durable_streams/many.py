"""Reads of many streams by one request: `/v1/read?stream=a&stream=b`.

| mode | answer |
|---|---|
| catch-up | a JSON object with the news of each stream, about one chunk in sum |
| long-poll | the same, as soon as one stream has news; 204 when none has in time |
| SSE | events that name their stream; each `control` event has the position in all of them |

A stream that does not exist is reported as missing, and one that was deleted as deleted; either is
delivered from its beginning once it exists.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple

import orjson

from tailrace.auth.origins import LocalHosts, Origins
from tailrace.errors import (
    BadParameter,
    MethodNotAllowed,
    OffsetTrimmed,
    StaleOffset,
    StreamGone,
    StreamNotFound,
    TailraceError,
)
from tailrace.limits import (
    LIST_PAGE_STREAMS,
    READ_MATCHES,
    READ_SEARCH_SECONDS,
    READ_STREAMS,
    SSE_KEEP_ALIVE_SECONDS,
)
from tailrace.live.follower import FOLLOW_SECONDS, Sink
from tailrace.log import offsets
from tailrace.log.content import Mode, join_bodies
from tailrace.log.offsets import Position
from tailrace.log.paths import fits, prefix_of
from tailrace.protocols.durable_streams import sse
from tailrace.protocols.durable_streams.caching import NO_STORE
from tailrace.protocols.durable_streams.missing import MissingStreams
from tailrace.protocols.durable_streams.positions import Known, pack, unpack
from tailrace.protocols.durable_streams.read_start import (
    ReadStart,
    parse_live,
    parse_start,
    read_from,
    resolve,
)
from tailrace.settings import Settings
from tailrace.store.base import Tail
from tailrace.streams import Streams, View
from tailrace.web.authorize import RequestAuthorizer
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
from tailrace.web.urls import MANY

_LEAST_CHUNK: Final = 4096
"""Bytes of a chunk of one stream, however many there are."""

_BEGINNING: Final = Position(offsets.BEGINNING)


class News(NamedTuple):
    """News of one stream: data, its end, or why it cannot be read."""

    path: str
    kind: str = ""
    """That of the event for `error`: missing, deleted or stale."""
    error: TailraceError | None = None
    view: View | None = None
    """None where there is no stream, or the answer has no room for more."""
    closed: bool = False
    """Whether the client does not know yet that this is the stream's end."""

    @property
    def is_any(self) -> bool:
        has_data = self.view is not None and bool(self.view.bodies)
        return has_data or self.closed or self.error is not None


class ManyStreams:
    """Answers requests for many streams."""

    def __init__(
        self,
        streams: Streams,
        settings: Settings,
        authorizer: RequestAuthorizer,
        limiter: Limiter,
        origins: Origins,
        hosts: LocalHosts | None,
        missing_streams: MissingStreams,
        *,
        patterns: bool,
    ) -> None:
        """`patterns`: whether requests may name streams by patterns, which takes a process that
        serves many readers."""
        self.respond = Endpoint(self._answer, origins, hosts).respond
        self._streams = streams
        self._authorizer = authorizer
        self._limiter = limiter
        self._missing = missing_streams
        self._patterns = patterns
        self._chunk_bytes = settings.chunk_bytes
        self._poll_seconds = settings.long_poll_timeout
        self._sse_seconds = settings.sse_lifetime

    async def _answer(self, request: Request) -> Answer:
        if request.method == "OPTIONS":
            return Response(204, [*PREFLIGHT_HEADERS])
        if request.method != "GET":
            raise MethodNotAllowed(request.method, "GET, OPTIONS")
        parameters = request.parameters()
        live = parse_live(parameters)
        names, patterns = self._selected(parameters.get("stream", ()))
        paths, subject = await self._authorizer.streams(request, names, patterns)
        request.client = client_key(subject, request.peer)
        if live:
            self._limiter.admit(request.client)
            self._missing.check(request.client)
        event_id = request.header(b"last-event-id") if live == "sse" else None
        matching = await self._matching(patterns)
        start, known = _parse_start(parameters, event_id, [*paths, *matching], live=bool(live))
        reading = _Reading(
            self._streams, self._missing, request.client, self._chunk_bytes, paths, start, known
        )
        reading.add(matching, start)
        if event_id and known.closed == {*paths} and not patterns:
            # A browser whose streams have ended would connect again and again; 204 stops it.
            return Response(204, [(b"stream-closed", b"true"), NO_STORE])
        if live == "sse":
            return Streaming(200, [*sse.HEADERS], partial(self._send_events, reading, patterns))
        if live:
            return await self._long_poll(reading, patterns)
        news = [each async for each in reading.news(self._chunk_bytes)]
        return _response(reading, news, ended=reading.ended and not patterns)

    def _selected(self, wanted: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        """The names, and the patterns, of the streams that a request wants to read."""
        if not wanted:
            raise BadParameter(f"name the streams to read: {MANY}?stream=a&stream=b")
        if len(wanted) > READ_STREAMS:
            raise BadParameter(f"a request may name at most {READ_STREAMS} streams")
        patterns = [name for name in wanted if "*" in name]
        if patterns and not self._patterns:
            raise BadParameter("only a server reads patterns of streams, not a Lambda function")
        return [name for name in wanted if "*" not in name], patterns

    async def _matching(self, patterns: Sequence[str]) -> Sequence[str]:
        """The paths of the streams that exist and match a pattern."""
        paths: dict[str, None] = {}
        for pattern in patterns:
            prefix = prefix_of(pattern)
            page = await self._streams.list(prefix, "", LIST_PAGE_STREAMS + 1)
            if len(page) > LIST_PAGE_STREAMS:
                raise BadParameter(
                    f"more than {LIST_PAGE_STREAMS} streams begin with '{prefix}'; write more of"
                    f" their path before the star of '{pattern}'"
                )
            listed = (each.stream.path for each in page)
            paths.update(dict.fromkeys(path for path in listed if fits(pattern, path)))
        if len(paths) > READ_MATCHES:
            raise BadParameter(f"the patterns match more than {READ_MATCHES} streams")
        return [*paths]

    async def _long_poll(self, reading: _Reading, patterns: Sequence[str]) -> Response:
        deadline = time.monotonic() + self._poll_seconds
        with self._limiter.live(reading.client):
            async with reading.waiting():
                news = await self._next(reading, patterns, deadline)
        ended = reading.ended and not patterns
        if ended and not news:
            self._limiter.check_closed_poll(reading.client, MANY)
        return _response(reading, news, ended=ended, live=True)

    async def _next(
        self, reading: _Reading, patterns: Sequence[str], deadline: float
    ) -> Sequence[News]:
        """Return the next news of any stream; none when the time is up."""
        while True:
            # A stream that still does not exist is no news, or no long-poll would wait.
            news = [
                each
                async for each in reading.news(self._chunk_bytes)
                if each.is_any and each.kind != "missing"
            ]
            left = deadline - time.monotonic()
            if news or left <= 0 or self._streams.draining or (reading.ended and not patterns):
                return news
            if not await reading.wait(min(left, READ_SEARCH_SECONDS) if patterns else left):
                reading.add(await self._matching(patterns))

    async def _send_events(self, reading: _Reading, patterns: Sequence[str], sink: Sink) -> None:
        """Send what each stream has, then what follows, until the answer has lived long enough."""
        deadline = time.monotonic() + self._sse_seconds
        search_at = time.monotonic() + READ_SEARCH_SECONDS
        sink.push(sse.RETRY)
        is_first = True
        async with reading.waiting():
            with self._limiter.live(reading.client):
                while True:
                    is_any = is_first
                    async for news in reading.news():
                        if news.is_any:
                            await _push(sink, news)
                            is_any = True
                    is_first, ended = False, reading.ended and not patterns
                    if is_any:
                        sink.push(_control_event(reading, ended=ended))
                        await sink.drain()
                    left = deadline - time.monotonic()
                    if ended or left <= 0 or self._streams.draining:
                        return
                    if patterns and time.monotonic() >= search_at:
                        search_at = time.monotonic() + READ_SEARCH_SECONDS
                        try:
                            reading.add(await self._matching(patterns))
                        except BadParameter:
                            return  # The client reconnects, and gets the error.
                        continue
                    pause = READ_SEARCH_SECONDS if patterns else SSE_KEEP_ALIVE_SECONDS
                    if not await reading.wait(min(left, pause)):
                        sink.push(sse.KEEP_ALIVE)
                        await sink.drain()


@dataclass(slots=True)
class _Place:
    """How far one stream has been read."""

    start: ReadStart
    """Where to read next."""
    is_known: bool = False
    """Whether the client knows the stream."""
    is_end_known: bool = False
    """Whether the client knows that the stream is closed."""
    tail: Tail | None = None
    """The stream as it was read last; None if it was not, or did not exist."""
    is_missing: bool = False
    """Whether the client was told that the stream does not exist."""
    up_to_date: bool = False
    closed: bool = False
    wait: asyncio.Task[object] | None = None
    """Waits until there may be something to read; None while there may be."""


class _Reading:
    """One request's places in the streams that it reads.

    What waits for a stream does not read it: data is read when the client takes it, one stream
    after the other, so that a slow client costs the memory of one chunk."""

    def __init__(
        self,
        streams: Streams,
        missing: MissingStreams,
        client: str,
        chunk_bytes: int,
        paths: Sequence[str],
        start: ReadStart,
        known: Known,
    ) -> None:
        """`paths`: streams that are waited for while they do not exist. `known`: what an earlier
        answer gave; other streams are read from `start` on."""
        self.client = client
        self._streams = streams
        self._missing = missing
        self._known = known
        self._chunk_bytes = max(_LEAST_CHUNK, chunk_bytes // max(1, len(paths)))
        self._places: dict[str, _Place] = {}
        self._named: Final = frozenset(paths)
        self.add(paths, start)

    def add(self, paths: Sequence[str], start: ReadStart = _BEGINNING) -> None:
        """Read further streams; by default from their beginning, since they are new."""
        for path in paths:
            if path not in self._places:
                known = self._known.positions.get(path)
                is_end_known = path in self._known.closed
                self._places[path] = _Place(known or start, bool(known), is_end_known=is_end_known)

    @property
    def position(self) -> str:
        """The position in each stream; one that is read from its beginning has none."""
        starts = {path: place.start for path, place in self._places.items()}
        return pack(
            {
                path: start
                for path, start in starts.items()
                if isinstance(start, Position) and start != _BEGINNING
            },
            [path for path, place in self._places.items() if place.is_end_known],
        )

    @property
    def up_to_date(self) -> bool:
        return all(place.up_to_date or place.is_missing for place in self._places.values())

    @property
    def ended(self) -> bool:
        """Whether no stream has anything more to tell, ever."""
        return all(place.closed for place in self._places.values())

    async def news(self, most_bytes: float = inf) -> AsyncIterator[News]:
        """Read the next chunk of each stream that may have one, about so many bytes in sum."""
        size = 0
        for path, place in list(self._places.items()):
            if place.wait is not None or place.closed:
                continue
            if size >= most_bytes:
                news = await self._skip(path, place)
            else:
                news = await self._read(path, place)
            if news.view is not None:
                size += sum(map(len, news.view.bodies))
            yield news

    async def wait(self, seconds: float) -> bool:
        """Wait until a stream may have something to read; False when the time is up."""
        for path, place in self._places.items():
            if place.wait is None and not place.closed:
                if not (place.up_to_date or place.is_missing):
                    return True
                place.wait = asyncio.create_task(self._wait(path, place))
        waits = [place.wait for place in self._places.values() if place.wait is not None]
        if not waits:
            await asyncio.sleep(seconds)
            return False
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for place in self._places.values():
            if place.wait in done:
                place.wait = None
        # What a wait raises, the read that follows raises, too.
        return any(task.exception() is not None or task.result() for task in done)

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """End all waits with the context."""
        try:
            yield
        finally:
            waits = [place.wait for place in self._places.values() if place.wait is not None]
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _wait(self, path: str, place: _Place) -> bool:
        if place.tail is None:
            return await self._missing.wait(path, self.client, FOLLOW_SECONDS)
        assert isinstance(place.start, Position)
        await self._streams.wait(place.tail, place.start.slot, FOLLOW_SECONDS)
        return True

    async def _skip(self, path: str, place: _Place) -> News:
        """Leave a stream for the next answer."""
        try:
            place.start = await resolve(self._streams, path, place.start)
        except (StreamNotFound, StreamGone) as error:
            return self._lose(path, place, error)
        return News(path)

    async def _read(self, path: str, place: _Place) -> News:
        error: TailraceError | None = None
        try:
            try:
                view = await read_from(self._streams, path, place.start, self._chunk_bytes)
            except (StaleOffset, OffsetTrimmed) as failure:
                if place.tail is not None and isinstance(failure, StaleOffset):
                    return self._lose(path, place, StreamNotFound(path))
                # The client is told that it has missed data.
                error, place.start = failure, _BEGINNING
                view = await read_from(self._streams, path, _BEGINNING, self._chunk_bytes)
        except (StreamNotFound, StreamGone) as failure:
            return self._lose(path, place, failure)
        if place.tail is not None and view.tail.stream.id != place.tail.stream.id:
            return self._lose(path, place, StreamNotFound(path))
        is_end_new = view.closed and not place.is_end_known
        self._places[path] = _Place(
            Position(view.end, view.offset, view.tail.stream.config.epoch),
            is_known=True,
            is_end_known=view.closed,
            tail=view.tail,
            up_to_date=view.up_to_date,
            closed=view.closed,
        )
        return News(path, "stale", error, view, is_end_new)

    def _lose(self, path: str, place: _Place, error: TailraceError) -> News:
        """Note that a stream does not exist: it is read from its beginning once it does."""
        if path in self._named:
            self._places[path] = _Place(_BEGINNING, is_missing=True)
        else:
            del self._places[path]
        if place.is_missing:
            return News(path)
        return News(path, "deleted" if place.is_known else "missing", error)


def _parse_start(
    parameters: Mapping[str, Sequence[str]],
    event_id: str | None,
    paths: Sequence[str],
    *,
    live: bool,
) -> tuple[ReadStart, Known]:
    """Where to begin in each stream, and what an earlier answer gave: a stream that it does not
    know was created since."""
    if event_id:
        return _BEGINNING, unpack(event_id, paths)
    given = parameters.get("offset", ("-1",))
    if given[0] in ("-1", "now") or len(given) > 1 or {"last", "since"} & parameters.keys():
        return parse_start(parameters, None, live=live), Known({}, ())
    return _BEGINNING, unpack(given[0], paths)


def _response(
    reading: _Reading, news: Sequence[News], *, ended: bool, live: bool = False
) -> Response:
    """The answer to a catch-up read or a long-poll."""
    headers: RawHeaders = [(b"stream-next-offset", reading.position.encode()), NO_STORE]
    if reading.up_to_date:
        headers.append((b"stream-up-to-date", b"true"))
    if ended:
        headers.append((b"stream-closed", b"true"))
    if live and not news:
        return Response(204, headers)
    streams = b'"streams":[%b]' % b",".join(b"{%b}" % b",".join(_fields(each)) for each in news)
    body = b"{%b,%b}" % (streams, _field("nextOffset", reading.position))
    return Response(200, [(b"content-type", b"application/json"), *headers], body)


def _fields(news: News) -> Sequence[bytes]:
    fields = [_field("stream", news.path)]
    if news.error is not None:
        fields.append(_field("error", _error(news.error)))
    view = news.view
    if view is not None:
        fields += [*_data(view), _field("nextOffset", view.next_offset)]
    fields.append(_field("upToDate", news.error is not None if view is None else view.up_to_date))
    fields.append(_field("closed", view is not None and view.closed))
    return fields


async def _push(sink: Sink, news: News) -> None:
    """Push the events about one stream."""
    stream = _field("stream", news.path)
    if news.error is not None:
        fields = b",".join([stream, _field("error", _error(news.error))])
        sink.push(b"event: %b\ndata:{%b}\n\n" % (news.kind.encode(), fields))
    if news.view is not None and news.view.bodies:
        payload = b"{%b}" % b",".join([stream, *_data(news.view)])
        pieces = sse.data_event(Mode.JSON, payload)
        for piece in (b"".join(pieces),) if sse.is_small(news.view) else pieces:
            if not sink.push(piece):
                await sink.drain()
            await asyncio.sleep(0)
    if news.closed:
        sink.push(b"event: closed\ndata:{%b}\n\n" % stream)


def _control_event(reading: _Reading, *, ended: bool) -> bytes:
    """Tell the position in all streams."""
    position = reading.position
    fields: dict[str, str | bool] = {"streamNextOffset": position}
    if reading.up_to_date:
        fields["upToDate"] = True
    if ended:
        fields["streamClosed"] = True
    return b"event: control\ndata:%b\nid:%b\n\n" % (orjson.dumps(fields), position.encode())


def _data(view: View) -> Sequence[bytes]:
    """The data of a view as fields of JSON: messages, a text, or base64 and that it is that."""
    mode = view.tail.stream.config.mode
    body = join_bodies(mode, view.bodies)
    if mode is Mode.JSON:
        return [b'"data":%b' % body]
    if mode is Mode.TEXT:
        with suppress(UnicodeDecodeError):
            return [_field("data", body.decode())]
    return [b'"data":"%b"' % b64encode(body), b'"encoding":"base64"']


def _error(error: TailraceError) -> dict[str, str]:
    return {"code": error.code, "message": str(error)}


def _field(name: str, value: Any) -> bytes:
    return b'"%b":%b' % (name.encode(), orjson.dumps(value))
