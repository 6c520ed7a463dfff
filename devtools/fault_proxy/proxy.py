"""A proxy between DynamoDB clients and an engine that simulates network faults.

    async with FaultProxy(engine.url, seed=1, weights=ROUGH) as proxy:
        store = DynamoStore(Settings(endpoint_url=proxy.url, ...))

Each request is read in full and gets one `Action`, chosen at random by `weights`, or by a `script`
that selects certain calls. The proxy also works for S3.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from enum import StrEnum
from itertools import chain
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

HEAD_BYTES: Final = 1 << 20
BROKEN: Final = (OSError, EOFError)


class Action(StrEnum):
    """The treatment of one request."""

    PASS = "pass"
    DROP_REQUEST = "drop request"
    """Not delivered; the connection closes without a response."""
    DROP_ANSWER = "drop answer"
    """Delivered; the connection is reset instead of a response."""
    TRUNCATE_ANSWER = "truncate answer"
    """Delivered; the connection is reset in the middle of the response."""
    DELAY_REQUEST = "delay request"
    DELAY_ANSWER = "delay answer"
    DUPLICATE = "duplicate"
    """Delivered with its response, and delivered again later."""
    LATE = "late"
    """The connection closes at once, and the request is delivered later."""
    THROTTLE_PROVISIONED = "throttle provisioned"
    THROTTLE = "throttle"
    HOT_KEY_PROVISIONED = "hot key provisioned"
    """Throttled for the rate of one key, with the error of a table with provisioned capacity."""
    HOT_KEY = "hot key"
    """The same, with the error of an on-demand table."""
    FAIL_BEFORE = "fail before"
    """500, not delivered."""
    FAIL_AFTER = "fail after"
    """500, although delivered."""


ROUGH: Final[Mapping[Action, float]] = {
    Action.PASS: 70,
    Action.DROP_REQUEST: 3,
    Action.DROP_ANSWER: 4,
    Action.TRUNCATE_ANSWER: 2,
    Action.DELAY_REQUEST: 4,
    Action.DELAY_ANSWER: 3,
    Action.DUPLICATE: 3,
    Action.LATE: 3,
    Action.THROTTLE_PROVISIONED: 1,
    Action.THROTTLE: 2,
    Action.HOT_KEY_PROVISIONED: 1,
    Action.HOT_KEY: 1,
    Action.FAIL_BEFORE: 2,
    Action.FAIL_AFTER: 1,
}
"""Many faults of all kinds."""

Script = Callable[[str, dict[str, Any]], Action | None]
"""Returns the action for an operation and its parameters; None passes the request."""


class Request(NamedTuple):
    raw: bytes
    method: str
    operation: str
    """The operation, such as `PutItem`; for S3 the method and path, such as `PUT /bucket/key`."""
    dynamodb: bool
    body: bytes

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON of a DynamoDB request; empty for S3."""
        return dict(json.loads(self.body)) if self.dynamodb else {}


class Answer(NamedTuple):
    raw: bytes
    body_bytes: int
    reusable: bool

    @property
    def first_half(self) -> bytes:
        """Truncate within the body, or within the head if there is no body."""
        if not self.body_bytes:
            return self.raw[: len(self.raw) // 2]
        return self.raw[: -((self.body_bytes + 1) // 2)]


class FaultProxy:
    """The proxy; `counts` has the number of each action, `operations` that of each operation."""

    def __init__(
        self,
        upstream: str,
        *,
        s3: str | None = None,
        seed: int = 0,
        weights: Mapping[Action, float] | None = None,
        only: Collection[str] | None = None,
        script: Script | None = None,
        delay: tuple[float, float] = (0.005, 0.1),
    ) -> None:
        """Create a proxy.

        `s3` is the engine of S3 if that is another one, `only` limits random faults to these
        operations, and `delay` is the range of delays in seconds."""
        self.weights = weights
        self.only = only
        self.script = script
        self.delay = delay
        self.counts = Counter[Action]()
        self.operations = Counter[str]()
        self._upstreams = {True: upstream, False: s3 or upstream}
        self._random = random.Random(seed)
        self._outage = False
        self._server: asyncio.Server | None = None
        self._clients = set[asyncio.StreamWriter]()
        self._idle = defaultdict[str, list[Connection]](list)
        self._serving = set[asyncio.Task[None]]()
        self._later = set[asyncio.Task[None]]()

    @property
    def url(self) -> str:
        assert self._server is not None, "the proxy is not running"
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}"

    @property
    def outage(self) -> bool:
        """While set, all connections are reset: open ones, and new ones at once."""
        return self._outage

    @outage.setter
    def outage(self, outage: bool) -> None:
        self._outage = outage
        if outage:
            for client in self._clients:
                _reset(client)

    async def heal(self) -> None:
        """Stop all faults, and wait for late deliveries."""
        self.weights = self.script = None
        self.outage = False
        await self.committed()

    async def committed(self) -> None:
        """Wait until no delivery is outstanding."""
        while self._later:
            await asyncio.gather(*self._later)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, limit=HEAD_BYTES, backlog=1024
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        tasks = [*self._serving, *self._later]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in self._clients:  # Those whose task had not begun.
            client.transport.abort()
        for _, upstream in chain.from_iterable(self._idle.values()):
            upstream.transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(
            0
        )  # An aborted transport closes its socket in the loop's next iteration.

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        _spawn(self._serving, self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.outage:
            self._clients.discard(writer)
            _reset(writer)
            return
        try:
            while await self._treat(await _read_request(reader, writer), writer):
                await writer.drain()
        except BROKEN:
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            self._clients.discard(writer)
            writer.close()
            with suppress(*BROKEN):
                await writer.wait_closed()

    async def _treat(self, request: Request, client: asyncio.StreamWriter) -> bool:
        """Treat a request; False if the connection has to be closed."""
        action = self._choose(request)
        self.counts[action] += 1
        self.operations[request.operation] += 1
        if (refusal := _refusal(action, request)) is not None:
            client.write(refusal)
            return True
        if action in (Action.DUPLICATE, Action.LATE):
            _spawn(self._later, self._deliver_later(request))
        if action in (Action.DROP_REQUEST, Action.LATE):
            return False
        if action is Action.DELAY_REQUEST:
            await self._pause()
        answer = await self._deliver(request)
        if action is Action.DELAY_ANSWER:
            await self._pause()
        if action is Action.TRUNCATE_ANSWER:
            client.write(answer.first_half)
            await client.drain()
        if action in (Action.DROP_ANSWER, Action.TRUNCATE_ANSWER):
            _reset(client)
            return False
        client.write(_failure(request) if action is Action.FAIL_AFTER else answer.raw)
        return True

    def _choose(self, request: Request) -> Action:
        if self.script is not None:
            return self.script(request.operation, request.parameters) or Action.PASS
        if not self.weights or (self.only is not None and request.operation not in self.only):
            return Action.PASS
        return self._random.choices([*self.weights], [*self.weights.values()])[0]

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.uniform(*self.delay))

    async def _deliver(self, request: Request) -> Answer:
        url = self._upstreams[request.dynamodb]
        connection = await self._connection(url)
        reader, upstream = connection
        try:
            upstream.write(request.raw)
            await upstream.drain()
            answer = await _read_answer(reader, request.method)
        except BaseException:
            upstream.transport.abort()
            raise
        if answer.reusable:
            self._idle[url].append(connection)
        else:
            upstream.close()
        return answer

    async def _deliver_later(self, request: Request) -> None:
        await self._pause()
        with suppress(*BROKEN):
            await self._deliver(request)

    async def _connection(self, url: str) -> Connection:
        while self._idle[url]:
            reader, upstream = self._idle[url].pop()
            if not reader.at_eof():
                return reader, upstream
            upstream.close()
        place = urlsplit(url)
        return await asyncio.open_connection(place.hostname, place.port, limit=HEAD_BYTES)


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _spawn(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST; data written before may or may not arrive."""
    transport = writer.transport
    connected: socket.socket | None = writer.get_extra_info("socket")
    if connected is not None and not transport.is_closing():
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
    head = await reader.readuntil(b"\r\n\r\n")
    start, fields = _parse(head)
    method, path, _ = start.split(" ")
    if fields.pop("expect", None) is not None:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        head = b"\r\n".join(
            line for line in head.split(b"\r\n") if not line.lower().startswith(b"expect:")
        )
    body = await _read_body(reader, fields)
    target = fields.get("x-amz-target")
    operation = f"{method} {path}" if target is None else target.rpartition(".")[2]
    return Request(head + body, method, operation, target is not None, body)


async def _read_answer(reader: asyncio.StreamReader, method: str) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    start, fields = _parse(head)
    bodiless = method == "HEAD" or start.split(" ")[1] in ("204", "304")
    body = b"" if bodiless else await _read_body(reader, fields)
    reusable = fields.get("connection", "").lower() != "close"
    return Answer(head + body, len(body), reusable)


def _parse(head: bytes) -> tuple[str, dict[str, str]]:
    start, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return start, {name.lower(): value.strip() for name, _, value in pairs}


async def _read_body(reader: asyncio.StreamReader, fields: Mapping[str, str]) -> bytes:
    """Read the raw body, including the framing of its chunks."""
    if "chunked" not in fields.get("transfer-encoding", ""):
        return await reader.readexactly(int(fields.get("content-length", "0")))
    raw = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        raw += line
        size = int(line.split(b";")[0], 16)
        if size:
            raw += await reader.readexactly(size + 2)
            continue
        while line != b"\r\n":  # Trailers end with an empty line.
            line = await reader.readuntil(b"\r\n")
            raw += line
        return raw


def _refusal(action: Action, request: Request) -> bytes | None:
    """The response of actions that do not deliver the request."""
    match action:
        case Action.THROTTLE_PROVISIONED:
            return _throttled(request, "ProvisionedThroughputExceededException")
        case Action.THROTTLE:
            return _throttled(request, "ThrottlingException")
        case Action.HOT_KEY_PROVISIONED:
            reasons = {"ThrottlingReasons": [_hot_key(request)]}
            return _throttled(request, "ProvisionedThroughputExceededException", reasons)
        case Action.HOT_KEY:
            # The exceptions differ in the case of this member; see botocore's model of DynamoDB.
            reasons = {"throttlingReasons": [_hot_key(request)]}
            return _throttled(request, "ThrottlingException", reasons)
        case Action.FAIL_BEFORE:
            return _failure(request)
        case _:
            return None


def _hot_key(request: Request) -> dict[str, str]:
    kind = "Read" if request.operation in ("GetItem", "BatchGetItem", "Query", "Scan") else "Write"
    return {
        "reason": f"Table{kind}KeyRangeThroughputExceeded",
        "resource": "arn:aws:dynamodb:us-east-1:000000000000:table/any",
    }


def _throttled(request: Request, code: str, more: Mapping[str, Any] | None = None) -> bytes:
    if not request.dynamodb:
        return _s3_error(request, 503, "SlowDown")
    return _dynamodb_error(400, code, more or {})


def _failure(request: Request) -> bytes:
    if not request.dynamodb:
        return _s3_error(request, 500, "InternalError")
    return _dynamodb_error(500, "InternalServerError", {})


def _dynamodb_error(status: int, code: str, more: Mapping[str, Any]) -> bytes:
    kind = f"com.amazonaws.dynamodb.v20120810#{code}"
    body = json.dumps({"__type": kind, "message": "said by the fault proxy", **more}).encode()
    return _answer(status, "application/x-amz-json-1.0", body)


def _s3_error(request: Request, status: int, code: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>said by the fault proxy</Message></Error>".encode()
    return _answer(status, "application/xml", b"" if request.method == "HEAD" else body)


def _answer(status: int, content_type: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} Fault\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body
