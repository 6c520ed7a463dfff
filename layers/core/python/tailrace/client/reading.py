"""Reading: catch-up, the last messages, and live tails that survive what connections do; no I/O."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from tailrace.client.content import (
    DEFAULT_TYPE,
    ContentKind,
    StreamChunk,
    encode_json,
    join_chunks,
)
from tailrace.client.errors import (
    BadRequestError,
    NotFoundError,
    ProtocolError,
    StaleCacheError,
    StreamError,
    UnreachableError,
)
from tailrace.client.events import EventParser, decode_data, parse_control
from tailrace.client.exchange import (
    Emit,
    HttpAnswer,
    HttpRequest,
    LostConnection,
    Now,
    Operation,
    Pause,
    Receive,
    RetryPolicy,
    exchange,
)
from tailrace.client.operations import TAILRACE, require_tailrace
from tailrace.client.urls import add_query, parse_origin

LiveMode = Literal["auto", "sse", "long-poll"]

NEXT_OFFSET: Final = "stream-next-offset"
START: Final = "-1"
SENTINELS: Final = (START, "now")

SHORTEST_POLL: Final = 0.2
"""Seconds: a long-poll without data that returns sooner did not wait."""

SHORTEST_EVENTS: Final = 1.0
"""Seconds: server-sent events that end sooner, without data, are those of a proxy that buffers."""

MOST_SHORT: Final = 3
"""Short responses in a row after which `auto` goes on by long-polls."""

UNWAITED_PAUSE: Final = 1.0
"""Seconds between requests to a server that does not wait."""

EVENTS_SILENCE: Final = 75.0
"""Seconds without a byte after which server-sent events count as lost: servers write more often."""

MOST_STALE: Final = 4
"""Repeated responses of a cache in a row after which the client gives up."""

CONTINUES: Final = 0x80
"""The highest bits of a byte that continues a character of UTF-8, of its two."""


@dataclass(frozen=True, slots=True)
class ReadStart:
    """Where a read begins: an offset, the last messages, or a time; one of them."""

    offset: str | None = None
    last: int | None = None
    since: str | datetime | float | None = None

    def parameters(self, default: str) -> dict[str, str]:
        given = [name for name in ("offset", "last", "since") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other: each says where to start")
        if self.last is not None:
            if self.last < 1:
                raise ValueError("last must be at least 1")
            return {"last": str(self.last)}
        if self.since is not None:
            return {"since": _format_time(self.since)}
        return {"offset": default if self.offset is None else self.offset}


def _format_time(since: str | datetime | float) -> str:
    if isinstance(since, datetime):
        if since.tzinfo is None:
            raise ValueError("since needs a time zone")
        since = since.timestamp()
    return since if isinstance(since, str) else str(round(since * 1000))


class StaleCheck:
    """Recognises old responses, of which a cache is the usual cause: nothing of them is delivered.

    A response may not lead back, nor bring data without going on, nor have the ETag of the one
    before it; a live response without data has a newer cursor than the request. Requests after
    such a response bypass caches.
    """

    def __init__(self) -> None:
        self._etag: str | None = None
        self._count = 0

    @property
    def bypass(self) -> bool:
        return self._count > 0

    def is_stale(self, offset: str, cursor: str | None, chunk: StreamChunk) -> bool:
        """Whether a response to a read from an offset is an old one; raises when it stays so."""
        stale = False
        if chunk.next_offset != offset:
            stale = offset not in SENTINELS and chunk.next_offset < offset
        elif not chunk.is_empty:
            stale = True
        elif cursor is not None and chunk.cursor is not None:
            stale = _is_not_newer(chunk.cursor, cursor)
        if not chunk.is_empty and chunk.etag is not None and chunk.etag == self._etag:
            stale = True
        if not stale:
            self._count = 0
            self._etag = None if chunk.is_empty else chunk.etag
            return False
        self._count += 1
        if self._count > MOST_STALE:
            raise StaleCacheError(f"the responses to reads from {offset} are old ones")
        return True


def _is_not_newer(cursor: str, sent: str) -> bool:
    if cursor.isdigit() and sent.isdigit():
        return int(cursor) <= int(sent)
    return cursor == sent


class StreamReading:
    """One reader of a stream: where it is, and what it has been told."""

    def __init__(
        self,
        url: str,
        retries: RetryPolicy,
        live_retries: RetryPolicy,
        live_timeout: float,
        *,
        empty: bool = False,
    ) -> None:
        """Create it; with `empty` a tail also emits the chunks of waits that brought nothing."""
        self.url = url
        self._empty = empty
        self._retries = retries
        self._live_retries = live_retries
        self._live_timeout = live_timeout
        self._stale = StaleCheck()

    def chunks(
        self, start: ReadStart, default: str = START, into: list[StreamChunk] | None = None
    ) -> Operation[StreamChunk]:
        """Emit the chunks up to the current end, or collect them; return the last."""
        parameters = start.parameters(default)
        while True:
            offset = parameters.get("offset", "")
            answer = yield from exchange(self._request(parameters), self._retries)
            if "since" in parameters:
                require_tailrace(answer, "since")
            chunk = parse_chunk(answer, offset)
            if NEXT_OFFSET in answer.headers and self._stale.is_stale(offset, None, chunk):
                yield self._retries.pause(0, StaleCacheError("a cache repeats old responses"))
                continue
            if into is None:
                yield Emit(chunk)
            else:
                into.append(chunk)
            if chunk.up_to_date or chunk.closed or chunk.next_offset == offset:
                return chunk
            parameters = {"offset": chunk.next_offset}

    def last(self, count: int) -> Operation[StreamChunk]:
        """Read the last messages of a JSON stream, or the last bytes of another.

        A server that does not know `last` sends everything, of which the end is kept.
        """
        return take_last((yield from self.all(ReadStart(last=count))), count)

    def all(self, start: ReadStart) -> Operation[StreamChunk]:
        """Read everything up to the current end."""
        parts: list[StreamChunk] = []
        yield from self.chunks(start, into=parts)
        return join_chunks(parts)

    def tail(
        self, start: ReadStart, mode: LiveMode, after: StreamChunk | None = None
    ) -> Operation[None]:
        """Emit what there is from the start on, then what is appended, until the stream closes.

        With `after` a chunk that was read before is the start.
        """
        if after is not None:
            chunk = after
        elif start.last is not None:
            chunk = yield from self.last(start.last)
            yield Emit(chunk)
        else:
            chunk = yield from self.chunks(start, "now")
        # Text comes by long-polls: events do not tell which kind of line break it has.
        by_events = mode == "sse" or (mode == "auto" and chunk.kind is not ContentKind.TEXT)
        while not chunk.closed:
            if by_events:
                chunk = yield from self._follow_events(chunk, strict=mode == "sse")
                by_events = False
            else:
                chunk = yield from self._follow_polls(chunk)

    def read_at(self, offset: str) -> Operation[StreamChunk]:
        """Read one response from an offset."""
        request = self._request({"offset": offset})
        return parse_chunk((yield from exchange(request, self._live_retries)), offset)

    def _follow_polls(self, chunk: StreamChunk) -> Operation[StreamChunk]:
        while not chunk.closed:
            new = yield from self.poll(chunk)
            if self._empty or not new.is_empty or new.closed:
                yield Emit(new)
            chunk = new
        return chunk

    def poll(self, chunk: StreamChunk) -> Operation[StreamChunk]:
        """Wait once for what follows a chunk."""
        while True:
            parameters = {"live": "long-poll", "offset": chunk.next_offset}
            if chunk.cursor is not None:
                parameters["cursor"] = chunk.cursor
            started: float = yield Now()
            request = self._request(parameters, patience=self._live_timeout)
            answer = yield from exchange(request, self._live_retries)
            new = parse_chunk(answer, chunk.next_offset, chunk.content_type)
            if NEXT_OFFSET in answer.headers and self._stale.is_stale(
                chunk.next_offset, chunk.cursor, new
            ):
                error = StaleCacheError("a cache repeats old responses")
                yield self._live_retries.pause(0, error)
                continue
            if new.closed and new.is_empty and TAILRACE not in answer.headers:
                # The reference server wakes those that wait for a last append with its end alone.
                return (yield from self.all(ReadStart(chunk.next_offset)))
            ended: float = yield Now()
            if (
                not new.closed
                and new.next_offset == chunk.next_offset
                and ended - started < SHORTEST_POLL
            ):
                yield Pause(UNWAITED_PAUSE)
            return new

    def _follow_events(self, chunk: StreamChunk, *, strict: bool) -> Operation[StreamChunk]:
        """Follow server-sent events until the stream closes, or they turn out not to work."""
        short = failures = 0
        while not chunk.closed:
            before = chunk
            started: float = yield Now()
            try:
                chunk = yield from self._one_response(chunk)
            except (BadRequestError, ProtocolError):
                if strict:
                    raise
                return chunk
            except LostEvents as lost:
                chunk = lost.chunk
                ended: float = yield Now()
                if ended - started >= SHORTEST_EVENTS:
                    failures = 0
                if chunk.next_offset == before.next_offset:
                    if not self._live_retries.permits(failures):
                        raise lost.error from None
                    yield self._live_retries.pause(failures, lost.error)
                    failures += 1
                    continue
            failures = 0
            ended = yield Now()
            if chunk.next_offset != before.next_offset or ended - started >= SHORTEST_EVENTS:
                short = 0
                continue
            short += 1
            if short >= MOST_SHORT and not strict:
                return chunk
            yield Pause(random.uniform(0.05, 0.2) * 2**short)  # noqa: S311
        return chunk

    def _one_response(self, chunk: StreamChunk) -> Operation[StreamChunk]:
        """Emit what one response brings, and return the last chunk.

        Data counts when its control event has come: the connection may break between them.
        """
        parameters = {"live": "sse", "offset": chunk.next_offset}
        if chunk.cursor is not None:
            parameters["cursor"] = chunk.cursor
        request = self._request(
            parameters,
            patience=min(self._live_timeout, EVENTS_SILENCE),
            Accept="text/event-stream",
        )
        answer = yield from exchange(request, self._live_retries, streaming=True)
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            raise ProtocolError("the server does not send events")
        encoding = answer.headers.get("stream-sse-data-encoding", "")
        parser = EventParser()
        data: list[bytes] = []
        while True:
            try:
                piece: bytes = yield Receive()
            except LostConnection as lost:
                error = UnreachableError(
                    f"lost the connection to {parse_origin(self.url)}: {lost.reason}"
                )
                raise LostEvents(chunk, error) from None
            if not piece:
                return chunk
            for event in parser.feed(piece):
                if event.name == "data":
                    data.append(decode_data(event.data, chunk.kind, encoding))
                elif event.name == "deleted":
                    raise NotFoundError(
                        "the stream was deleted, or has expired, while it was read", status=404
                    )
                elif event.name == "control":
                    control = parse_control(event.data)
                    new = StreamChunk(
                        _join_data(data, chunk.kind),
                        chunk.content_type,
                        control.next_offset,
                        control.up_to_date,
                        control.closed,
                        control.cursor or chunk.cursor,
                    )
                    data = []
                    if not new.is_empty and self._stale.is_stale(chunk.next_offset, None, new):
                        raise LostEvents(chunk, StaleCacheError("a cache repeats old responses"))
                    if self._empty or not new.is_empty or new.closed:
                        yield Emit(new)
                    chunk = new
                    if new.closed:
                        return chunk

    def _request(
        self, parameters: Mapping[str, str], patience: float | None = None, **headers: str
    ) -> HttpRequest:
        if self._stale.bypass:
            headers["Cache-Control"] = "no-cache"
            parameters = {**parameters, "fresh": f"{random.getrandbits(48):x}"}
        return HttpRequest("GET", add_query(self.url, parameters), headers, patience=patience)


class LostEvents(Exception):
    """The connection with server-sent events was lost, after some chunk."""

    def __init__(self, chunk: StreamChunk, error: StreamError) -> None:
        super().__init__(str(error))
        self.chunk = chunk
        self.error = error


def parse_chunk(answer: HttpAnswer, offset: str, content_type: str = "") -> StreamChunk:
    """The chunk of a response to a read from an offset."""
    headers = answer.headers
    return StreamChunk(
        body=answer.body,
        content_type=content_type or headers.get("content-type", DEFAULT_TYPE),
        next_offset=headers.get(NEXT_OFFSET, offset),
        up_to_date=answer.says("stream-up-to-date"),
        closed=answer.says("stream-closed"),
        cursor=headers.get("stream-cursor"),
        etag=headers.get("etag"),
    )


def take_last(chunk: StreamChunk, count: int) -> StreamChunk:
    """The last messages, or bytes, of a chunk; of text, whole characters."""
    if chunk.kind is ContentKind.JSON:
        messages = chunk.json()
        if len(messages) <= count:
            return chunk
        return replace(chunk, body=b"[%b]" % b",".join(map(encode_json, messages[-count:])))
    start = max(0, len(chunk.body) - count)
    while chunk.kind is ContentKind.TEXT and 0 < start < len(chunk.body):
        if chunk.body[start] & 0xC0 != CONTINUES:
            break
        start += 1
    return replace(chunk, body=chunk.body[start:])


def _join_data(data: list[bytes], kind: ContentKind) -> bytes:
    if len(data) == 1:
        return data[0]
    if kind is not ContentKind.JSON:
        return b"".join(data)
    texts = [each.strip()[1:-1] for each in data]
    return b"[%b]" % b",".join(text for text in texts if text.strip())
