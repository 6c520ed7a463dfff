"""The Runtime API of one execution environment, on loopback, and as strict as AWS's.

    async with RuntimeApi() as api:
        ...  # start a runtime with AWS_LAMBDA_RUNTIME_API=api.address
        invocation = api.invoke(event, seconds=30)
        await invocation.begun()
        async for piece in invocation.body():
            ...

It serves AWS's runtime and ours, and refuses the same requests as AWS, with the same status and
error type. It also refuses a streamed HTTP response without a proper prelude, which AWS accepts and
then cannot serve. A refused response makes the invocation fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, Self

from devtools.local_aws.runtime_wire import (
    HTTP_RESPONSE,
    MAX_HEAD_BYTES,
    Failure,
    Prelude,
    Refusal,
    Request,
    read_failure,
    read_trailing,
    write_answer,
)

__all__ = ["HTTP_RESPONSE", "MAX_BUFFERED_BYTES", "Failed", "Failure", "Invocation", "RuntimeApi"]

MAX_BUFFERED_BYTES: Final = 6 * 1024 * 1024 + 100
"""The maximum size of a buffered response; AWS names this number in its error."""

WAITING_PIECES: Final = 16
"""How many unread pieces of a body are buffered before the runtime has to wait."""

ARN: Final = "arn:aws:lambda:us-east-1:000000000000:function:test"

_BASE: Final = "/2018-06-01/runtime"
_POST: Final = re.compile(rf"{_BASE}/invocation/([^/]+)/(response|error)")
_MODE: Final = "lambda-runtime-function-response-mode"
_UNANSWERED: Final = ("running", "answering")


class Failed(Exception):
    """There is no response, or an incomplete one: a failed init, a timeout, or a closed API."""


class Invocation:
    """An event for the runtime, and its response."""

    def __init__(
        self, event: Mapping[str, Any], seconds: float, grace: float, headers: Mapping[str, str]
    ) -> None:
        self.request_id = str(uuid.uuid4())
        self.mode: Literal["buffered", "streaming"] = "buffered"
        self.content_type = ""
        self.failure: Failure | None = None
        """Set when the body has ended."""
        self.arrivals: list[tuple[float, int]] = []
        """The monotonic time at which each chunk was complete, and its size."""
        self.state: Literal["queued", "running", "answering", "finished", "expired"] = "queued"
        self.invocation_id = headers.get("Lambda-Runtime-Invocation-Id")
        self._payload = json.dumps(event).encode()
        self._headers = {
            "Content-Type": "application/json",
            "Lambda-Runtime-Aws-Request-Id": self.request_id,
            "Lambda-Runtime-Deadline-Ms": str(int((time.time() + seconds) * 1000)),
            **headers,
        }
        self._begun = asyncio.Event()
        self._broken: str | None = None
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(WAITING_PIECES)
        self._answering: asyncio.StreamWriter | None = None
        loop = asyncio.get_running_loop()
        self._expiry = loop.call_later(seconds + grace, self._expire, seconds)

    async def begun(self) -> None:
        """Wait until the runtime starts to respond, even with an error; raises `Failed`."""
        await self._begun.wait()
        if self._answering is None:
            raise Failed(self._broken)

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body as the runtime sends it; empty if the runtime reports an error.

        The runtime has to wait while nothing reads."""
        while (piece := await self._pieces.get()) is not None:
            self._room.release()
            yield piece
        if self._broken is not None:
            raise Failed(self._broken)

    async def whole(self) -> bytes:
        """Read the complete body."""
        await self.begun()
        return b"".join([piece async for piece in self.body()])

    def hand_out(self) -> bytes:
        self.state = "running"
        return write_answer(200, self._payload, self._headers)

    def begin(self, writer: asyncio.StreamWriter, headers: Mapping[str, str]) -> None:
        self.state = "answering"
        self.content_type = headers.get("content-type", "")
        self._answering = writer
        self._begun.set()

    async def take(self, piece: bytes) -> None:
        self.arrivals.append((time.monotonic(), len(piece)))
        await self._room.acquire()
        if self.state != "answering":
            raise EOFError
        self._pieces.put_nowait(piece)

    def finish(self, failure: Failure | None) -> None:
        if self.state == "answering":
            self.failure = failure
            self._end("finished")

    def give_up(self, reason: str) -> None:
        """End an invocation without a response; does nothing if there is one."""
        if self.state not in ("finished", "expired"):
            self._broken = reason
            self._end("finished")

    def _expire(self, seconds: float) -> None:
        if self.state == "finished":
            return
        self._broken = f"timed out after {seconds} seconds"
        if self._answering is not None:
            self._answering.transport.abort()
        self._end("expired")

    def _end(self, state: Literal["finished", "expired"]) -> None:
        self.state = state
        self._expiry.cancel()
        self._begun.set()
        self._pieces.put_nowait(None)
        self._room.release()


class RuntimeApi:
    """The Runtime API; `concurrency` is how many invocations the runtime may have at once."""

    def __init__(self, *, concurrency: int = 1) -> None:
        self.address = ""
        self.init_error: Failure | None = None
        self.connections = 0
        """The number of connections that the runtime has opened."""
        self._concurrency = concurrency
        self._initialised = False
        self._queue: deque[Invocation] = deque()
        self._waiters: deque[asyncio.Future[Invocation]] = deque()
        self._handed_out: dict[str, Invocation] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, limit=MAX_HEAD_BYTES
        )
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def close(self) -> None:
        self._server.close()
        for invocation in [*self._queue, *self._handed_out.values()]:
            invocation.give_up("the Runtime API was closed")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def waiting(self) -> bool:
        """Whether the runtime is waiting for an invocation."""
        return bool(self._waiters)

    async def disconnected(self, seconds: float) -> None:
        """Wait until the runtime has closed all connections and all its data has been read."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    def invoke(
        self,
        event: Mapping[str, Any],
        *,
        seconds: float,
        grace: float = 0,
        trace: str = "",
        arn: str = ARN,
        headers: Mapping[str, str] | None = None,
    ) -> Invocation:
        """Queue an event for the runtime.

        Its announced deadline is `seconds`, and it may take `grace` longer. `headers` are added to
        the headers of the event."""
        more = {"Lambda-Runtime-Invoked-Function-Arn": arn, **(headers or {})}
        if trace:
            more["Lambda-Runtime-Trace-Id"] = trace
        invocation = Invocation(event, seconds, grace, more)
        if self.init_error is not None:
            invocation.give_up(f"init failed: {self.init_error.kind}")
        elif self._waiters:
            self._waiters.popleft().set_result(invocation)
        else:
            self._queue.append(invocation)
        return invocation

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(Request(reader, writer)):
                pass
        except (OSError, EOFError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, request: Request) -> bool:
        """Serve one request; False if the connection has to be closed."""
        try:
            await request.read_head()
            answer = await self._respond(request)
        except Refusal as refusal:
            headers = {"Connection": "close"} if refusal.close else {}
            body = json.dumps(refusal.body).encode()
            request.writer.write(write_answer(refusal.status, body, headers))
            await request.writer.drain()
            return not refusal.close
        request.writer.write(answer)
        await request.writer.drain()
        return request.headers.get("connection", "").lower() != "close"

    async def _respond(self, request: Request) -> bytes:
        if request.path == f"{_BASE}/invocation/next":
            request.expect("GET")
            await request.drop_body()
            return (await self._next(request)).hand_out()
        request.expect("POST")
        if request.path == f"{_BASE}/init/error":
            await self._fail_init(request)
        elif (match := _POST.fullmatch(request.path)) is not None:
            invocation = self._find(match[1], request.headers)
            invocation.begin(request.writer, request.headers)
            take = self._take_response if match[2] == "response" else self._take_error
            try:
                invocation.finish(await take(invocation, request))
            except Refusal as refusal:
                invocation.finish(refusal.failure)
                raise
            except (OSError, EOFError):
                text = "the runtime broke its answer off"
                invocation.finish(Refusal(400, "TruncatedResponse", text).failure)
                raise
        else:
            raise Refusal(404, "NotFound", f"there is no {request.path}")
        return write_answer(202, b'{"status":"OK"}\n')

    async def _next(self, request: Request) -> Invocation:
        self._initialised = True
        running = [each for each in self._handed_out.values() if each.state in _UNANSWERED]
        if len(running) + len(self._waiters) >= self._concurrency:
            _forbid("the next invocation is asked for before the last one is answered")
        invocation = self._queued() or await self._arrival(request)
        self._handed_out[invocation.request_id] = invocation
        return invocation

    def _queued(self) -> Invocation | None:
        while self._queue:
            if (invocation := self._queue.popleft()).state == "queued":
                return invocation
        return None

    async def _arrival(self, request: Request) -> Invocation:
        arrival: asyncio.Future[Invocation] = asyncio.get_running_loop().create_future()
        self._waiters.append(arrival)
        # A runtime that has disconnected must not be given an invocation.
        gone = asyncio.ensure_future(request.reader.read(1))
        either: list[asyncio.Future[Any]] = [arrival, gone]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not arrival.done():
                raise EOFError
            return arrival.result()
        finally:
            if arrival in self._waiters:
                self._waiters.remove(arrival)
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    def _find(self, request_id: str, headers: Mapping[str, str]) -> Invocation:
        invocation = self._handed_out.get(request_id)
        if invocation is None:
            raise Refusal(400, "InvalidRequestID", "Invalid request ID")
        if invocation.state == "expired":
            raise Refusal(410, "InvokeTimeout", "Invoke timeout")
        if invocation.state != "running":
            _forbid("the invocation has been answered")
        if headers.get("lambda-runtime-invocation-id") != invocation.invocation_id:
            raise Refusal(400, "InvalidInvocationID", "the invocation's id is not sent back")
        return invocation

    async def _fail_init(self, request: Request) -> None:
        if self._initialised:
            _forbid("init is over")
        self.init_error = read_failure(request.headers, await request.whole_body())
        for invocation in self._queue:
            invocation.give_up(f"init failed: {self.init_error.kind}")

    async def _take_error(self, _: Invocation, request: Request) -> Failure:
        return read_failure(request.headers, await request.whole_body())

    async def _take_response(self, invocation: Invocation, request: Request) -> Failure | None:
        mode = request.headers.get(_MODE)
        if mode == "streaming":
            invocation.mode = "streaming"
            prelude = Prelude() if invocation.content_type == HTTP_RESPONSE else None
            async for piece in request.pieces():
                await invocation.take(piece)
                if prelude is not None:
                    prelude.check(piece)
            if prelude is not None:
                prelude.check_end()
            return read_trailing(request.trailers)
        if mode is not None:
            text, kind = "Invalid function response mode", "InvalidFunctionResponseMode"
            raise Refusal(400, kind, text, failure="Runtime.InvalidResponseModeHeader")
        body = await request.whole_body()
        if len(body) > MAX_BUFFERED_BYTES:
            text = f"Exceeded maximum allowed payload size ({MAX_BUFFERED_BYTES} bytes)."
            kind = "RequestEntityTooLarge"
            raise Refusal(413, kind, text, close=False, failure="Function.ResponseSizeTooLarge")
        await invocation.take(body)
        return None


def _forbid(message: str) -> NoReturn:
    raise Refusal(403, "InvalidStateTransition", message)
