"""The client for programs with an event loop (asyncio)."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from tailrace.client import operations, subscriptions, transport
from tailrace.client.batching import BatchLimits, ProducerBatch, ProducerCore
from tailrace.client.blocking import DEFAULT_URL, OnRetry
from tailrace.client.content import (
    JSON_TYPE,
    ContentKind,
    StreamChunk,
    encode_body,
    encode_message,
    join_messages,
)
from tailrace.client.errors import StreamError, as_stream_error
from tailrace.client.exchange import (
    FOR_EVER,
    Effect,
    Emit,
    Fetch,
    GetToken,
    HttpAnswer,
    HttpRequest,
    LostConnection,
    Now,
    Open,
    Operation,
    Pause,
    Receive,
    RetryPolicy,
)
from tailrace.client.operations import AppendResult, CreateResult, ProducerPlace, StreamInfo
from tailrace.client.reading import LiveMode, ReadStart, StreamReading
from tailrace.client.subscriptions import SubscriptionWork, WorkItem
from tailrace.client.urls import check_url, parse_origin, stream_url

T = TypeVar("T")

AsyncToken = str | Callable[[], str | Awaitable[str]]


class AsyncClient:
    """Streams of one server: `Client` with coroutines.

    A function that returns a token may be a coroutine function.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: AsyncToken | None = None,
        timeout: float = 30.0,
        live_timeout: float = 150.0,
        retries: RetryPolicy = RetryPolicy(),  # noqa: B008
        live_retries: RetryPolicy = FOR_EVER,
        on_retry: OnRetry | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self.url = check_url(url)
        self.retries = retries
        self.live_retries = live_retries
        self.live_timeout = live_timeout
        self._timeout = timeout
        self._token = token
        self._fresh_token: str | None = None
        self._token_lock = asyncio.Lock()
        self._on_retry = on_retry
        self._given = http
        self._own: dict[bool, httpx.AsyncClient] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        for http in self._own.values():
            await http.aclose()

    def stream(self, name: str, *, content_type: str | None = None) -> AsyncStream:
        """A stream by its path on the server, such as `chat/room-1`, or by its full URL.

        Nothing is sent. Appends need the content type, which is asked for if it is not given.
        """
        return AsyncStream(self, name, content_type)

    def list(self, prefix: str = "") -> AsyncIterator[StreamInfo]:
        """The streams whose path begins with the prefix; only Tailrace servers list them."""
        return self.iterate(operations.list_streams(self.url, self.retries, prefix))

    def subscription(self, name: str) -> AsyncSubscription:
        """A subscription by its id. Nothing is sent."""
        return AsyncSubscription(self, name)

    async def run(self, operation: Operation[T]) -> T:
        """Carry out an operation, and return its result."""
        results = [result async for result in self.iterate(_emit_result(operation))]
        result: T = results[-1]
        return result

    async def iterate(self, operation: Operation[Any]) -> AsyncGenerator[Any, None]:
        """Carry out an operation, and yield what it emits."""
        response: httpx.Response | None = None
        pieces: AsyncIterator[bytes] | None = None
        try:
            effect: Effect = next(operation)
            while True:
                outcome: Any = None
                try:
                    match effect:
                        case Emit(value):
                            yield value
                        case Fetch(request):
                            outcome = await self._fetch(request)
                        case GetToken(refresh):
                            outcome = await self._credentials(refresh)
                        case Pause(seconds, error):
                            if error is not None and self._on_retry is not None:
                                self._on_retry(seconds, error)
                            await asyncio.sleep(seconds)
                        case Now():
                            outcome = time.monotonic()
                        case Open(request):
                            if response is not None:
                                await response.aclose()
                            response, outcome = await self._open(request)
                            pieces = response.aiter_bytes()
                        case Receive():
                            assert pieces is not None
                            outcome = await self._receive(pieces)
                except LostConnection as lost:
                    effect = operation.throw(lost)
                else:
                    effect = operation.send(outcome)
        except StopIteration:
            return
        finally:
            operation.close()
            if response is not None:
                await response.aclose()

    async def _fetch(self, request: HttpRequest) -> HttpAnswer:
        http = self._http(request.url)
        try:
            response = await http.send(transport.build(http, request, self._timeout))
        except transport.LOST as error:
            raise transport.lost(error) from None
        return transport.answer_of(response, response.content)

    async def _open(self, request: HttpRequest) -> tuple[httpx.Response, HttpAnswer]:
        http = self._http(request.url)
        try:
            sent = transport.build(http, request, self._timeout)
            response = await http.send(sent, stream=True)
            body = b"" if response.is_success else await response.aread()
        except transport.LOST as error:
            raise transport.lost(error) from None
        return response, transport.answer_of(response, body)

    async def _receive(self, pieces: AsyncIterator[bytes]) -> bytes:
        try:
            return await anext(pieces, b"")
        except transport.LOST as error:
            raise transport.lost(error) from None

    async def _credentials(self, refresh: bool) -> str | None:
        if not callable(self._token):
            return self._token
        async with self._token_lock:
            if refresh or self._fresh_token is None:
                token = self._token()
                self._fresh_token = await token if inspect.isawaitable(token) else token
            return self._fresh_token

    def _http(self, url: str) -> httpx.AsyncClient:
        if self._given is not None:
            return self._given
        secure = url.startswith("https:")
        if secure not in self._own:
            self._own[secure] = httpx.AsyncClient(**transport.options(transport.trust_for(url)))
        return self._own[secure]


def _emit_result(operation: Operation[T]) -> Operation[None]:
    yield Emit((yield from operation))


class AsyncStream:
    """A stream of a server: `client.stream("chat/room-1")`."""

    def __init__(self, client: AsyncClient, name: str, content_type: str | None = None) -> None:
        self.client = client
        self.name = name
        self.url = stream_url(client.url, name)
        self._content_type = content_type

    def __repr__(self) -> str:
        return f"<AsyncStream {self.url}>"

    async def get_content_type(self) -> str:
        """The content type, which is asked for once."""
        if self._content_type is None:
            await self.head()
        assert self._content_type is not None
        return self._content_type

    async def create(
        self,
        *,
        content_type: str | None = None,
        ttl: int | None = None,
        expires_at: str | datetime | None = None,
        closed: bool = False,
        body: Any = None,
        forked_from: str | None = None,
        at: str | None = None,
        sub_offset: int | None = None,
    ) -> CreateResult:
        """Create the stream; one with the same settings may exist.

        `ttl` is in seconds without use. `body` is the first content, and all of it with `closed`.
        `forked_from`, `at` and `sub_offset` are as for `fork`.
        """
        given = content_type or self._content_type
        source = None if forked_from is None else stream_url(self.client.url, forked_from)
        if source is not None and parse_origin(source) != parse_origin(self.url):
            raise ValueError("a stream and its fork must be on the same server")
        result = await self.client.run(
            operations.create(
                self.url,
                self.client.retries,
                content_type=given,
                ttl=ttl,
                expires_at=expires_at,
                closed=closed,
                body=b"" if body is None else encode_body(ContentKind.of(given or ""), body),
                fork_headers=operations.fork_headers(source, at, sub_offset),
            )
        )
        self._content_type = result.info.content_type
        return result

    async def fork(
        self,
        name: str,
        *,
        at: str | None = None,
        sub_offset: int | None = None,
        ttl: int | None = None,
        expires_at: str | datetime | None = None,
    ) -> AsyncStream:
        """Create a stream that begins with the content of this one, up to an offset or its end.

        `sub_offset` adds so many messages, or bytes, of the append that follows the offset.
        """
        fork = AsyncStream(self.client, name)
        await fork.create(
            forked_from=self.url, at=at, sub_offset=sub_offset, ttl=ttl, expires_at=expires_at
        )
        return fork

    async def head(self) -> StreamInfo:
        """The metadata; a stream's TTL is not renewed by it."""
        info = await self.client.run(operations.head(self.url, self.client.retries))
        self._content_type = info.content_type
        return info

    async def append(
        self,
        value: Any,
        *,
        close: bool = False,
        seq: str | None = None,
        if_match: str | None = None,
        producer: ProducerPlace | None = None,
    ) -> AppendResult:
        """Append a message, and close the stream with it if `close`.

        In a JSON stream that is any value; otherwise bytes or text. Bytes are sent as they are: in
        a JSON stream they are JSON text, whose array is a batch.
        A request that may have been applied is not repeated, and raises `UnclearError`, unless it
        is one of a `producer`; to number requests is the work of `producer()`.
        `seq` has to sort after the last one, `if_match` is the offset at which the stream has to
        end.
        """
        body = encode_body(ContentKind.of(await self.get_content_type()), value)
        return await self._append(body, close, seq, if_match, producer)

    async def append_many(
        self, values: Iterable[Any], *, close: bool = False, if_match: str | None = None
    ) -> AppendResult:
        """Append messages by one request: all of them, or none."""
        kind = ContentKind.of(await self.get_content_type())
        messages = [encode_message(kind, value) for value in values]
        if not messages:
            raise ValueError("there is nothing to append")
        return await self._append(join_messages(kind, messages), close, None, if_match, None)

    async def close(self, *, producer: ProducerPlace | None = None) -> AppendResult:
        """Close the stream: readers see its end, and it accepts no more appends."""
        return await self.client.run(
            operations.append(
                self.url,
                self.client.retries,
                b"",
                content_type=None,
                close=True,
                producer=producer,
            )
        )

    async def delete(self) -> None:
        await self.client.run(operations.delete(self.url, self.client.retries))
        self._content_type = None

    async def read(
        self,
        offset: str | None = None,
        *,
        last: int | None = None,
        since: str | datetime | float | None = None,
    ) -> StreamChunk:
        """Everything from an offset, a time, or the last messages on, up to the current end."""
        reading = self._reading()
        if last is not None:
            ReadStart(offset, last, since).parameters("")
            return await self.client.run(reading.last(last))
        return await self.client.run(reading.all(ReadStart(offset, last, since)))

    def chunks(
        self, offset: str | None = None, *, since: str | datetime | float | None = None
    ) -> AsyncChunkIterator:
        """The same, response by response."""
        start = ReadStart(offset, None, since)
        return AsyncChunkIterator(self.client.iterate(self._reading().chunks(start)))

    def items(
        self, offset: str | None = None, *, since: str | datetime | float | None = None
    ) -> AsyncIterator[Any]:
        """The messages of a JSON stream up to its current end."""
        return self.chunks(offset, since=since).items()

    def tail(
        self,
        offset: str | None = None,
        *,
        last: int | None = None,
        since: str | datetime | float | None = None,
        live: LiveMode = "auto",
        after: StreamChunk | None = None,
        empty: bool = False,
    ) -> AsyncChunkIterator:
        """The content from the start on, and then all that is appended; by default only the latter.

        It ends when the stream is closed. Lost connections are replaced by new ones, which go on
        where the last one ended. `after` is a chunk that was read before, to go on at its end.
        With `empty` a wait that brought nothing is a chunk without data.
        """
        start = ReadStart(offset, last, since)
        reading = self._reading(empty=empty)
        return AsyncChunkIterator(self.client.iterate(reading.tail(start, live, after)))

    def producer(
        self,
        id: str | None = None,  # noqa: A002
        *,
        epoch: int | None = None,
        next_seq: int | None = None,
        limits: BatchLimits = BatchLimits(),  # noqa: B008
        retries: RetryPolicy | None = None,
    ) -> AsyncProducer:
        """A producer, which appends each message exactly once."""
        return AsyncProducer(
            self, id, epoch=epoch, next_seq=next_seq, limits=limits, retries=retries
        )

    async def _append(
        self,
        body: bytes,
        close: bool,
        seq: str | None,
        if_match: str | None,
        producer: ProducerPlace | None,
    ) -> AppendResult:
        client, kind = self.client, await self.get_content_type()
        if if_match is not None:
            return await client.run(
                operations.append_if_match(
                    self.url,
                    client.retries,
                    body,
                    content_type=kind,
                    if_match=if_match,
                    close=close,
                    seq=seq,
                )
            )
        return await client.run(
            operations.append(
                self.url,
                client.retries,
                body,
                content_type=kind,
                close=close,
                seq=seq,
                producer=producer,
            )
        )

    def _reading(self, *, empty: bool = False) -> StreamReading:
        client = self.client
        return StreamReading(
            self.url, client.retries, client.live_retries, client.live_timeout, empty=empty
        )


class AsyncChunkIterator:
    """The chunks of a read; `offset` is where the next one begins, to resume there.

    Leave a loop over it within `async with`, so that its connection is closed at once.
    """

    def __init__(self, chunks: AsyncGenerator[StreamChunk, None]) -> None:
        self._chunks = chunks
        self.offset: str | None = None
        self.closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamChunk:
        chunk = await anext(self._chunks)
        self.offset, self.closed = chunk.next_offset, chunk.closed
        return chunk

    async def items(self) -> AsyncIterator[Any]:
        """The messages of a JSON stream."""
        async for chunk in self:
            for item in chunk.json():
                yield item

    async def close(self) -> None:
        """Stop reading."""
        await self._chunks.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class AsyncSubscription:
    """A subscription, which wakes workers when one of its streams has news."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.client = client
        self.name = name
        self.url = subscriptions.subscription_url(client.url, name)

    async def create(
        self,
        wake_stream: str,
        *,
        pattern: str | None = None,
        streams: Iterable[str] | None = None,
        lease_ttl_ms: int | None = None,
        description: str | None = None,
    ) -> Mapping[str, Any]:
        """Create it, to wake by events on a JSON stream; one with the same settings may exist."""
        await self.client.stream(wake_stream).create(content_type=JSON_TYPE)
        fields = subscriptions.pull_wake(wake_stream, pattern, streams, lease_ttl_ms, description)
        return await self.client.run(
            subscriptions.create_subscription(self.url, self.client.retries, fields)
        )

    async def get(self) -> Mapping[str, Any]:
        """Its settings, and how far each stream was handled."""
        return await self.client.run(subscriptions.get_subscription(self.url, self.client.retries))

    async def delete(self) -> None:
        """Delete it; its streams stay."""
        await self.client.run(subscriptions.delete_subscription(self.url, self.client.retries))

    async def work(
        self, worker: str | None = None, *, once: bool = False
    ) -> AsyncIterator[WorkItem]:
        """The messages to handle, for ever, or with `once` until nothing is pending.

        An item counts as handled when the next one is asked for; the lease is extended meanwhile.
        If the loop is left by an exception, the wake is released, and the item comes again.
        """
        client = self.client
        work = SubscriptionWork(
            client.url,
            self.name,
            worker or subscriptions.worker_name(),
            client.retries,
            client.live_retries,
            client.live_timeout,
        )

        async def beat() -> None:
            while True:
                await asyncio.sleep(work.beat_seconds)
                await client.run(work.beat())

        beating = asyncio.create_task(beat())
        try:
            async for item in client.iterate(work.run(once=once)):
                yield item
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            if work.wake is not None:
                with suppress(StreamError):
                    await client.run(subscriptions.release(work.url, client.retries, work.wake))


class AsyncProducer:
    """Appends each message exactly once, in order, in batches, several requests at a time.

    A failure that cannot be mended stops it: `append`, `flush` and all outcomes raise the error
    then.
    """

    def __init__(
        self,
        stream: AsyncStream,
        id: str | None = None,  # noqa: A002
        *,
        epoch: int | None = None,
        next_seq: int | None = None,
        limits: BatchLimits = BatchLimits(),  # noqa: B008
        retries: RetryPolicy | None = None,
    ) -> None:
        """Create it.

        Without an `epoch` it claims a new one, and fences off earlier producers with its `id`.
        With one it goes on after the requests that the server has of it, or at `next_seq`.
        By default a request is repeated for ever.
        """
        self.stream = stream
        self._core: ProducerCore[asyncio.Future[AppendResult]] = ProducerCore(
            asyncio.Future, limits, id=id, epoch=epoch, next_seq=next_seq, now=time.time()
        )
        self._retries = FOR_EVER if retries is None else retries
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._stopped = False
        self._kind: ContentKind | None = None

    @property
    def id(self) -> str:
        return self._core.id

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def next_seq(self) -> int:
        """The number of the next request, in this epoch."""
        return self._core.next_seq

    async def append(self, value: Any) -> asyncio.Future[AppendResult]:
        """Add a message; the future, which its batch shares, tells when the server has it.

        Waits while too much is under way.
        """
        self._check_running()
        if self._kind is None:
            self._kind = ContentKind.of(await self.stream.get_content_type())
        while self._core.is_full and self._core.error is None:
            await self._wait()
        sealed = self._core.sealed
        batch = self._core.add(self._kind, value, self._now())
        if self._core.sealed > sealed:
            self._send()
            await asyncio.sleep(0)
        elif len(batch.messages) == 1:
            self._send()
        return batch.outcome

    async def flush(self) -> None:
        """Wait until the server has all messages."""
        self._core.flush()
        self._send()
        while not self._core.is_idle:
            await self._wait()
        if self._core.error is not None:
            raise self._core.error.copy()

    async def close_stream(self) -> AppendResult:
        """Append what is left, and close the stream with it, exactly once."""
        self._check_running()
        outcome = self._core.close_stream(self._now()).outcome
        self._send()
        result = await outcome
        await self.close()
        return result

    async def close(self) -> None:
        """Append what is left, and stop; a producer that was stopped stays so."""
        if self._stopped:
            return
        try:
            await self.flush()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Stop without sending what is left."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        stopped = StreamError("the producer was stopped", code="STOPPED")
        for batch in self._core.abandon(stopped):
            batch.outcome.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self.stop()

    def _check_running(self) -> None:
        if self._stopped:
            raise ValueError("the producer is closed")

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _send(self) -> None:
        """Start the requests that can be sent, and a timer for the next one."""
        loop = asyncio.get_running_loop()
        while (batch := self._core.take(loop.time())) is not None:
            task = loop.create_task(self._deliver(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._core.wait_until()
        if due is not None:
            self._timer = loop.call_at(due, self._send)

    async def _deliver(self, batch: ProducerBatch[asyncio.Future[AppendResult]]) -> None:
        core, stream = self._core, self.stream
        try:
            kind = await stream.get_content_type()
            result = await stream.client.run(core.operation(batch, stream.url, kind, self._retries))
        except asyncio.CancelledError:
            batch.outcome.cancel()
            raise
        except Exception as error:  # noqa: BLE001
            for each in core.failed(batch, as_stream_error(error)):
                _fail(each.outcome, error)
        else:
            core.succeeded(batch, result)
            if not batch.outcome.done():
                batch.outcome.set_result(result)
        self._changed.set()
        self._send()


def _fail(outcome: asyncio.Future[AppendResult], error: Exception) -> None:
    """Set the error of an outcome, which nobody has to look at: `flush` raises it as well."""
    if not outcome.done():
        outcome.set_exception(error)
        outcome.exception()
