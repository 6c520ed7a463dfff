"""The client for programs without an event loop; it may be shared by threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx

from tailrace.client import operations, subscriptions, transport
from tailrace.client.batching import BatchLimits, ProducerBatch, ProducerCore
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

DEFAULT_URL: Final = "http://127.0.0.1:4437"

Token = str | Callable[[], str]
OnRetry = Callable[[float, StreamError], object]


class Client:
    """Streams of one server.

    `token` is a bearer token, or a function that returns one, which is called again when the
    server refuses it. `timeout` is for the connection and for each silence of a response,
    `live_timeout` for that of one that waits for data. `retries` is for requests, `live_retries`
    for a tail that has begun. `on_retry` is told of each pause, and why. `http` replaces the
    HTTP client, and is not closed.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: Token | None = None,
        timeout: float = 30.0,
        live_timeout: float = 150.0,
        retries: RetryPolicy = RetryPolicy(),  # noqa: B008
        live_retries: RetryPolicy = FOR_EVER,
        on_retry: OnRetry | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        self.url = check_url(url)
        self.retries = retries
        self.live_retries = live_retries
        self.live_timeout = live_timeout
        self._timeout = timeout
        self._token = token
        self._fresh_token: str | None = None
        self._token_lock = threading.Lock()
        self._on_retry = on_retry
        self._given = http
        self._own: dict[bool, httpx.Client] = {}
        self._own_lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for http in self._own.values():
            http.close()

    def stream(self, name: str, *, content_type: str | None = None) -> Stream:
        """A stream by its path on the server, such as `chat/room-1`, or by its full URL.

        Nothing is sent. Appends need the content type, which is asked for if it is not given.
        """
        return Stream(self, name, content_type)

    def list(self, prefix: str = "") -> Iterator[StreamInfo]:
        """The streams whose path begins with the prefix; only Tailrace servers list them."""
        return self.iterate(operations.list_streams(self.url, self.retries, prefix))

    def subscription(self, name: str) -> Subscription:
        """A subscription by its id. Nothing is sent."""
        return Subscription(self, name)

    def run(self, operation: Operation[T], sleep: Callable[[float], object] | None = None) -> T:
        """Carry out an operation, and return its result."""
        steps = self.iterate(operation, sleep)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: T = stop.value
                return result

    def iterate(
        self, operation: Operation[T], sleep: Callable[[float], object] | None = None
    ) -> Generator[Any, None, T]:
        """Carry out an operation, and yield what it emits."""
        response: httpx.Response | None = None
        pieces: Iterator[bytes] = iter(())
        try:
            effect: Effect = next(operation)
            while True:
                outcome: Any = None
                try:
                    match effect:
                        case Emit(value):
                            yield value
                        case Fetch(request):
                            outcome = self._fetch(request)
                        case GetToken(refresh):
                            outcome = self._credentials(refresh)
                        case Pause(seconds, error):
                            if error is not None and self._on_retry is not None:
                                self._on_retry(seconds, error)
                            (sleep or time.sleep)(seconds)
                        case Now():
                            outcome = time.monotonic()
                        case Open(request):
                            if response is not None:
                                response.close()
                            response, outcome = self._open(request)
                            pieces = response.iter_bytes()
                        case Receive():
                            outcome = self._receive(pieces)
                except LostConnection as lost:
                    effect = operation.throw(lost)
                else:
                    effect = operation.send(outcome)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            operation.close()
            if response is not None:
                response.close()

    def _fetch(self, request: HttpRequest) -> HttpAnswer:
        http = self._http(request.url)
        try:
            response = http.send(transport.build(http, request, self._timeout))
        except transport.LOST as error:
            raise transport.lost(error) from None
        return transport.answer_of(response, response.content)

    def _open(self, request: HttpRequest) -> tuple[httpx.Response, HttpAnswer]:
        http = self._http(request.url)
        try:
            response = http.send(transport.build(http, request, self._timeout), stream=True)
            body = b"" if response.is_success else response.read()
        except transport.LOST as error:
            raise transport.lost(error) from None
        return response, transport.answer_of(response, body)

    def _receive(self, pieces: Iterator[bytes]) -> bytes:
        try:
            return next(pieces, b"")
        except transport.LOST as error:
            raise transport.lost(error) from None

    def _credentials(self, refresh: bool) -> str | None:
        if not callable(self._token):
            return self._token
        with self._token_lock:
            if refresh or self._fresh_token is None:
                self._fresh_token = self._token()
            return self._fresh_token

    def _http(self, url: str) -> httpx.Client:
        if self._given is not None:
            return self._given
        secure = url.startswith("https:")
        with self._own_lock:
            if secure not in self._own:
                verify = transport.trust_for(url)
                self._own[secure] = httpx.Client(**transport.options(verify))
            return self._own[secure]


class Stream:
    """A stream of a server: `client.stream("chat/room-1")`."""

    def __init__(self, client: Client, name: str, content_type: str | None = None) -> None:
        self.client = client
        self.name = name
        self.url = stream_url(client.url, name)
        self._content_type = content_type

    def __repr__(self) -> str:
        return f"<Stream {self.url}>"

    @property
    def content_type(self) -> str:
        """The content type, which is asked for once."""
        if self._content_type is None:
            self.head()
        assert self._content_type is not None
        return self._content_type

    def create(
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
        result = self.client.run(
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

    def fork(
        self,
        name: str,
        *,
        at: str | None = None,
        sub_offset: int | None = None,
        ttl: int | None = None,
        expires_at: str | datetime | None = None,
    ) -> Stream:
        """Create a stream that begins with the content of this one, up to an offset or its end.

        `sub_offset` adds so many messages, or bytes, of the append that follows the offset.
        """
        fork = Stream(self.client, name)
        fork.create(
            forked_from=self.url, at=at, sub_offset=sub_offset, ttl=ttl, expires_at=expires_at
        )
        return fork

    def head(self) -> StreamInfo:
        """The metadata; a stream's TTL is not renewed by it."""
        info = self.client.run(operations.head(self.url, self.client.retries))
        self._content_type = info.content_type
        return info

    def append(
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
        body = encode_body(ContentKind.of(self.content_type), value)
        return self._append(body, close, seq, if_match, producer)

    def append_many(
        self, values: Iterable[Any], *, close: bool = False, if_match: str | None = None
    ) -> AppendResult:
        """Append messages by one request: all of them, or none."""
        kind = ContentKind.of(self.content_type)
        messages = [encode_message(kind, value) for value in values]
        if not messages:
            raise ValueError("there is nothing to append")
        return self._append(join_messages(kind, messages), close, None, if_match, None)

    def close(self, *, producer: ProducerPlace | None = None) -> AppendResult:
        """Close the stream: readers see its end, and it accepts no more appends."""
        return self.client.run(
            operations.append(
                self.url,
                self.client.retries,
                b"",
                content_type=None,
                close=True,
                producer=producer,
            )
        )

    def delete(self) -> None:
        self.client.run(operations.delete(self.url, self.client.retries))
        self._content_type = None

    def read(
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
            return self.client.run(reading.last(last))
        return self.client.run(reading.all(ReadStart(offset, last, since)))

    def chunks(
        self, offset: str | None = None, *, since: str | datetime | float | None = None
    ) -> ChunkIterator:
        """The same, response by response."""
        start = ReadStart(offset, None, since)
        return ChunkIterator(self.client.iterate(self._reading().chunks(start)))

    def items(
        self, offset: str | None = None, *, since: str | datetime | float | None = None
    ) -> Iterator[Any]:
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
    ) -> ChunkIterator:
        """The content from the start on, and then all that is appended; by default only the latter.

        It ends when the stream is closed. Lost connections are replaced by new ones, which go on
        where the last one ended. `after` is a chunk that was read before, to go on at its end.
        With `empty` a wait that brought nothing is a chunk without data.
        """
        start = ReadStart(offset, last, since)
        reading = self._reading(empty=empty)
        return ChunkIterator(self.client.iterate(reading.tail(start, live, after)))

    def producer(
        self,
        id: str | None = None,  # noqa: A002
        *,
        epoch: int | None = None,
        next_seq: int | None = None,
        limits: BatchLimits = BatchLimits(),  # noqa: B008
        retries: RetryPolicy | None = None,
    ) -> Producer:
        """A producer, which appends each message exactly once."""
        return Producer(self, id, epoch=epoch, next_seq=next_seq, limits=limits, retries=retries)

    def _append(
        self,
        body: bytes,
        close: bool,
        seq: str | None,
        if_match: str | None,
        producer: ProducerPlace | None,
    ) -> AppendResult:
        client, kind = self.client, self.content_type
        if if_match is not None:
            return client.run(
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
        return client.run(
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


class ChunkIterator:
    """The chunks of a read; `offset` is where the next one begins, to resume there."""

    def __init__(self, chunks: Generator[StreamChunk, None, Any]) -> None:
        self._chunks = chunks
        self.offset: str | None = None
        self.closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StreamChunk:
        chunk = next(self._chunks)
        self.offset, self.closed = chunk.next_offset, chunk.closed
        return chunk

    def items(self) -> Iterator[Any]:
        """The messages of a JSON stream."""
        for chunk in self:
            yield from chunk.json()

    def close(self) -> None:
        """Stop reading."""
        self._chunks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Subscription:
    """A subscription, which wakes workers when one of its streams has news."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.url = subscriptions.subscription_url(client.url, name)

    def create(
        self,
        wake_stream: str,
        *,
        pattern: str | None = None,
        streams: Iterable[str] | None = None,
        lease_ttl_ms: int | None = None,
        description: str | None = None,
    ) -> Mapping[str, Any]:
        """Create it, to wake by events on a JSON stream; one with the same settings may exist."""
        self.client.stream(wake_stream).create(content_type=JSON_TYPE)
        fields = subscriptions.pull_wake(wake_stream, pattern, streams, lease_ttl_ms, description)
        return self.client.run(
            subscriptions.create_subscription(self.url, self.client.retries, fields)
        )

    def get(self) -> Mapping[str, Any]:
        """Its settings, and how far each stream was handled."""
        return self.client.run(subscriptions.get_subscription(self.url, self.client.retries))

    def delete(self) -> None:
        """Delete it; its streams stay."""
        self.client.run(subscriptions.delete_subscription(self.url, self.client.retries))

    def work(self, worker: str | None = None, *, once: bool = False) -> Iterator[WorkItem]:
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
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(work.beat_seconds):
                client.run(work.beat(), ended.wait)

        beating = threading.Thread(target=beat, name=f"lease-{self.name}", daemon=True)
        beating.start()
        try:
            yield from client.iterate(work.run(once=once))
        finally:
            ended.set()
            beating.join()
            if work.wake is not None:
                with suppress(StreamError):
                    client.run(subscriptions.release(work.url, client.retries, work.wake))


class Producer:
    """Appends each message exactly once, in order, in batches, several requests at a time.

    It may be shared by threads. A failure that cannot be mended stops it: `append`, `flush` and
    all outcomes raise the error then.
    """

    def __init__(
        self,
        stream: Stream,
        id: str | None = None,  # noqa: A002
        *,
        epoch: int | None = None,
        next_seq: int | None = None,
        limits: BatchLimits = BatchLimits(),  # noqa: B008
        retries: RetryPolicy | None = None,
    ) -> None:
        """Create it; requests are sent by threads of its own.

        Without an `epoch` it claims a new one, and fences off earlier producers with its `id`.
        With one it goes on after the requests that the server has of it, or at `next_seq`.
        By default a request is repeated for ever.
        """
        self.stream = stream
        self._core: ProducerCore[Future[AppendResult]] = ProducerCore(
            Future, limits, id=id, epoch=epoch, next_seq=next_seq, now=time.time()
        )
        self._most = limits.in_flight
        self._retries = FOR_EVER if retries is None else retries
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle_threads = 0
        self._stopping = threading.Event()

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

    def append(self, value: Any) -> Future[AppendResult]:
        """Add a message; the future, which its batch shares, tells when the server has it.

        Waits while too much is under way.
        """
        kind = ContentKind.of(self.stream.content_type)
        with self._changed:
            self._check_running()
            self._changed.wait_for(lambda: not self._core.is_full or self._core.error)
            sealed = self._core.sealed
            batch = self._core.add(kind, value, time.monotonic())
            if len(batch.messages) == 1 or self._core.sealed > sealed:
                self._wake()
            return batch.outcome

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the server has all messages; raises TimeoutError after `timeout` seconds."""
        with self._changed:
            self._core.flush()
            self._wake()
            if not self._changed.wait_for(lambda: self._core.is_idle, timeout):
                raise TimeoutError("not all messages were appended in time")
            if self._core.error is not None:
                raise self._core.error.copy()

    def close_stream(self) -> AppendResult:
        """Append what is left, and close the stream with it, exactly once."""
        with self._changed:
            self._check_running()
            outcome = self._core.close_stream(time.monotonic()).outcome
            self._wake()
        result = outcome.result()
        self.close()
        return result

    def close(self) -> None:
        """Append what is left, and stop; a producer that was stopped stays so."""
        if self._stopping.is_set():
            return
        try:
            self.flush()
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop without sending what is left; a request under way is completed."""
        with self._changed:
            self._stopping.set()
            left = self._core.abandon(StreamError("the producer was stopped", code="STOPPED"))
            self._changed.notify_all()
        for batch in left:
            batch.outcome.cancel()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.stop()

    def _check_running(self) -> None:
        if self._stopping.is_set():
            raise ValueError("the producer is closed")

    def _wake(self) -> None:
        if not self._idle_threads and len(self._threads) < self._most:
            thread = threading.Thread(target=self._work, name=f"{self.id}-{len(self._threads)}")
            thread.daemon = True
            self._threads.append(thread)
            thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                batch = self._next_batch()
                if batch is None:
                    return
            self._deliver(batch)

    def _next_batch(self) -> ProducerBatch[Future[AppendResult]] | None:
        """Wait for a batch to send; None when the producer was stopped."""
        self._idle_threads += 1
        try:
            while not self._stopping.is_set():
                now = time.monotonic()
                batch = self._core.take(now)
                if batch is not None:
                    return batch
                due = self._core.wait_until()
                self._changed.wait(None if due is None else max(0.0, due - now))
            return None
        finally:
            self._idle_threads -= 1

    def _deliver(self, batch: ProducerBatch[Future[AppendResult]]) -> None:
        core = self._core
        failed: list[ProducerBatch[Future[AppendResult]]] = []
        try:
            operation = core.operation(
                batch, self.stream.url, self.stream.content_type, self._retries
            )
            result = self.stream.client.run(operation, self._stopping.wait)
        except Exception as error:  # noqa: BLE001
            with self._changed:
                failed = core.failed(batch, as_stream_error(error))
                self._wake()
            for each in failed:
                each.outcome.set_exception(error)
        else:
            with self._changed:
                core.succeeded(batch, result)
                self._wake()
            batch.outcome.set_result(result)
