"""Connections that send fuzzed requests and judge what comes back: no 5xx, and no silence."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final

from devtools.chaos.calls import ANSWER_SECONDS, HOST
from devtools.chaos.fuzz.requests import FuzzedRequest, Requests
from devtools.chaos.report import Report
from devtools.load.client import Address, Client

STATUS: Final = re.compile(rb"HTTP/1\.1 (\d\d\d) ")
ANSWERS: Final = "fuzzed requests"
PATIENCE: Final = 0.3
"""How long an unsound request may wait for the rest that never comes, before it is ended."""
QUIET: Final = 0.01
READ_BYTES: Final = 1 << 16


class FuzzClient:
    """One client, which sends one request after the other."""

    def __init__(self, port: int, requests: Requests, report: Report, name: str) -> None:
        self._port = port
        self._requests = requests
        self._report = report
        self._name = name
        self._client: Client | None = None

    async def run(self, more: Callable[[], bool]) -> None:
        """Send requests while there are to be more."""
        while more():
            request = self._requests.next()
            statuses = list[int]()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    statuses = await self._send(request)
            except TimeoutError:
                self._close()
                self._report.violation(ANSWERS, self._shown("no answer to", request))
            except OSError as error:
                self._close()
                if request.sound:
                    self._report.violation(ANSWERS, self._shown(f"{error!r} instead of", request))
                self._report.count(f"{self._name}: connections that the server ended")
            self._report.count(ANSWERS)
            for status in statuses:
                self._report.count(f"{self._name}: {status // 100}xx")
                if status >= 500:
                    self._report.violation(ANSWERS, self._shown(f"{status} for", request))
        self._close()

    async def _send(self, request: FuzzedRequest) -> list[int]:
        if not request.sound:
            return await self._send_unsound(request)
        if self._client is not None:
            try:
                return [await self._ask(self._client, request)]
            except OSError:
                # The server may have ended the connection after the answer before.
                self._close()
        self._client = await Address(HOST, self._port).connect(Client())
        return [await self._ask(self._client, request)]

    async def _ask(self, client: Client, request: FuzzedRequest) -> int:
        begins, ends = (0, *request.cuts), (*request.cuts, None)
        first, *others = map(request.raw.__getitem__, map(slice, begins, ends))
        answer = asyncio.create_task(client.ask(first))
        for piece in others:
            await asyncio.sleep(QUIET)
            client.transport.write(piece)
        response = await answer
        if others:
            # It may have been answered before it was complete, which ends the connection.
            self._close()
        return response.status

    async def _send_unsound(self, request: FuzzedRequest) -> list[int]:
        """Send bytes that may be several requests, or a part of one; the server ends it at last."""
        reader, writer = await asyncio.open_connection(HOST, self._port)
        try:
            writer.write(request.raw)
            received = await _read_for(reader, PATIENCE)
            while received and (more := await _read_for(reader, QUIET)):
                received += more
            if not received:
                writer.write_eof()
                received = await reader.read(READ_BYTES)
            return [int(status) for status in STATUS.findall(received)]
        finally:
            writer.transport.abort()

    def _close(self) -> None:
        if self._client is not None:
            self._client.transport.abort()
            self._client = None

    def _shown(self, what: str, request: FuzzedRequest) -> str:
        return f"{self._name}: {what} {request.raw[:2000]!r}"


async def _read_for(reader: asyncio.StreamReader, seconds: float) -> bytes:
    """Read what comes within some seconds; empty if nothing does."""
    try:
        async with asyncio.timeout(seconds):
            return await reader.read(READ_BYTES)
    except TimeoutError:
        return b""
