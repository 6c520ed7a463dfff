"""HTTP calls to the servers of a round; every answer is counted and judged."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from devtools.chaos.report import Report
from devtools.load.client import Address, C, Client
from devtools.load.sse import SseTail
from devtools.load.wire import Event, Response, render
from tailrace.log.offsets import START

HOST: Final = "127.0.0.1"
PREFIX: Final = "/v1/stream/"
ANSWER_SECONDS: Final = 120.0
"""The bound of every answer: far above what faults and a busy machine add."""
RETRY_SECONDS: Final = 0.03
DECLARED: Final = (503, 507)
"""Statuses of a server that cannot store now; they say when to try again."""
AVISO_FAILURES: Final = ("NOTIFICATION_STORAGE_FAILED", "SSE_STREAM_INITIALIZATION_FAILED")
"""Aviso's own errors for the same, which have the status 500 as its clients know it."""

RETRIED: Final = ("500", "503", "507")

Headers = Mapping[str, str]


class NoAnswer(Exception):
    """The connection broke; the request may have been carried out."""


class NotSent(NoAnswer):
    """No server accepted the connection, so nothing was done."""


class Unexpected(Exception):
    """An answer that no fault explains."""


def problem(response: Response, *, lenient: bool) -> str | None:
    """Say what is wrong with any answer; `lenient`: the store may be unavailable."""
    if response.status < 500:
        return None
    shown = f"{response.status} {response.body[:300]!r}"
    if not lenient:
        return f"{shown}, but the store is available"
    if response.status in DECLARED:
        return None if response.header("Retry-After") else f"{shown} without Retry-After"
    return None if error_code(response) in AVISO_FAILURES else shown


def error_code(response: Response) -> str:
    """The code of an error, of streams or of Aviso."""
    try:
        body: dict[str, Any] = json.loads(response.body)
        found = body["code"] if "code" in body else body["error"]["code"]
    except (ValueError, TypeError, KeyError):
        return ""
    return str(found)


def required(response: Response, name: str) -> str:
    """A header that the response must have."""
    value = response.header(name)
    if value is None:
        raise Unexpected(f"no {name} in {response.head!r}")
    return value


async def eventually(check: Callable[[], bool], seconds: float) -> bool:
    """Wait until a check holds; returns whether it does in time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not (found := check()) and loop.time() < end:  # noqa: ASYNC110 - others change the state
        await asyncio.sleep(RETRY_SECONDS)
    return found


class Caller:
    """A client of some servers with connections that it keeps, and credentials."""

    def __init__(
        self,
        ports: Sequence[int],
        report: Report,
        headers: Headers,
        judge: Callable[[Response], str | None],
    ) -> None:
        """`judge`: says what is wrong with an answer, whatever was asked."""
        self.ports = ports
        self.headers = headers
        self._report = report
        self._judge = judge
        self._idle = defaultdict[int, list[Client]](list)

    async def ask(
        self,
        server: int,
        method: str,
        path: str,
        headers: Headers | None = None,
        body: bytes | None = None,
        *,
        expected: Sequence[int] = (),
    ) -> Response:
        """Send a request; raises Unexpected if the status is neither 503 nor an expected one."""
        request = render(method, path, {**self.headers, **(headers or {})}, body)
        client = await self._client(server)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                response = await client.ask(request)
        except TimeoutError:
            client.transport.abort()
            shown = f"{method} {path}: no answer within {ANSWER_SECONDS:.0f} s"
            self._report.violation("answers", shown)
            raise NoAnswer(shown) from None
        except OSError as error:
            raise NoAnswer(str(error)) from None
        except BaseException:
            client.transport.abort()
            raise
        self._idle[server].append(client)
        self._report.count("answers")
        if found := self._judge(response):
            self._report.violation("answers", f"{method} {path}: {found}")
        elif response.status >= 500:
            self._report.count(f"answers {response.status} {error_code(response)}")
        elif expected and response.status not in expected:
            shown = f"{response.status} {response.body[:300]!r}"
            raise Unexpected(f"{method} {path}: {shown}, not one of {expected}")
        return response

    async def insist(
        self,
        server: int,
        method: str,
        path: str,
        headers: Headers | None = None,
        body: bytes | None = None,
        *,
        expected: Sequence[int] = (),
    ) -> Response:
        """Ask until there is an answer other than 5xx, one server after the other; for requests
        that may be repeated."""
        while True:
            with suppress(NoAnswer):
                response = await self.ask(server, method, path, headers, body, expected=expected)
                if response.status < 500:
                    return response
            self._report.count("requests repeated")
            await asyncio.sleep(RETRY_SECONDS)
            server = (server + 1) % len(self.ports)

    async def bodies(self, server: int, path: str) -> AsyncIterator[bytes]:
        """Yield all that a stream holds, an answer at a time."""
        offset, up_to_date = START, False
        while not up_to_date:
            response = await self.insist(server, "GET", f"{path}?offset={offset}", expected=(200,))
            yield response.body
            offset = required(response, "Stream-Next-Offset")
            up_to_date = response.header("Stream-Up-To-Date") == "true"

    async def events(
        self,
        server: int,
        method: str,
        path: str,
        seconds: float,
        headers: Headers | None = None,
        body: bytes | None = None,
    ) -> AsyncIterator[Event]:
        """Yield the events of a live response until it ends; it is dropped after some seconds."""
        tail = SseTail(render(method, path, {**self.headers, **(headers or {})}, body))
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        try:
            await self._connect(server, tail)
        except NotSent:
            await asyncio.sleep(RETRY_SECONDS)
            return
        try:
            while (left := end - loop.time()) > 0:
                async with asyncio.timeout(left):
                    event = await tail.events.get()
                if event is None or (event.kind == "refused" and event.data[9:12] in RETRIED):
                    await asyncio.sleep(RETRY_SECONDS)
                    break
                if event.kind == "refused":
                    raise Unexpected(f"{method} {path}: {event.data}")
                yield event
        except TimeoutError:
            pass
        finally:
            tail.transport.abort()

    def close(self) -> None:
        for client in (each for idle in self._idle.values() for each in idle):
            client.transport.abort()
        self._idle.clear()

    async def _client(self, server: int) -> Client:
        idle = self._idle[server]
        while idle:
            client = idle.pop()
            if not client.lost:
                return client
        return await self._connect(server, Client())

    async def _connect(self, server: int, connection: C) -> C:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await Address(HOST, self.ports[server]).connect(connection)
        except OSError as error:  # A timeout is one, too.
            raise NotSent(str(error)) from None
