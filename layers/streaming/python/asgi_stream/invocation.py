"""Runs the app for one request."""

from __future__ import annotations

import asyncio

from asgi_stream.asgi import App, Message, Scope
from asgi_stream.connection import BROKEN, Connection
from asgi_stream.context import Context
from asgi_stream.faults import (
    DeadlineExceeded,
    IncompleteResponse,
    NoResponse,
    kind,
    log,
    report,
)
from asgi_stream.response import Response

LEAVE_SECONDS = 0.5
"""How long before the deadline `receive` returns `http.disconnect`. At the deadline the platform
would abort the response and discard the environment."""

CANCEL_SECONDS = 0.25
"""How long before the deadline an unfinished app is cancelled. The rest is for sending the end of
the response, which may be slow in a small function."""

CLEAN_UP_SECONDS = 0.1
"""How long a cancelled app may take to end; then it is abandoned."""


class Invocation:
    def __init__(self, connection: Connection, context: Context, padding: int) -> None:
        self._connection = connection
        self._context = context
        self._path = f"/invocation/{context.aws_request_id}"
        invocation_id = context.invocation_id
        self._echo = {"Lambda-Runtime-Invocation-Id": invocation_id} if invocation_id else {}
        self._over = asyncio.Event()
        """Set when `receive` should return `http.disconnect`."""
        self._late = False
        self._concluded = False
        self._body: bytes | None = None
        self._response = Response(connection, padding, self._over.set)

    async def run(self, app: App, scope: Scope, body: bytes) -> None:
        self._body = body
        left = self._context.seconds_left()
        timer = asyncio.get_running_loop().call_later(left - LEAVE_SECONDS, self._leave)
        task = asyncio.create_task(self._call(app, scope))
        try:
            await asyncio.wait({task}, timeout=max(0, left - CANCEL_SECONDS))
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=CLEAN_UP_SECONDS)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            timer.cancel()
        await self._conclude(self._verdict(task))

    async def fail(self, error: BaseException) -> None:
        """Report an error before the response has started."""
        log(f"request {self._context.aws_request_id} failed", error)
        headers = {**self._echo, "Lambda-Runtime-Function-Error-Type": kind(error)}
        try:
            path = f"{self._path}/error"
            answer = await self._connection.call("POST", path, headers, report(error))
        except BROKEN as broken:
            log(f"the error could not be reported: {broken!r}")
            return
        if answer.status != 202:
            log(f"the Runtime API refused the error: {answer}")

    async def _call(self, app: App, scope: Scope) -> None:
        await app(scope, self._receive, self._send)

    def _leave(self) -> None:
        self._late = True
        self._over.set()

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        response = self._response
        if self._concluded:
            raise ConnectionResetError("the invocation is over")
        match message["type"]:
            case "http.response.start" if not response.started:
                path, headers = f"{self._path}/response", message.get("headers", ())
                await response.start(path, self._echo, message["status"], headers)
            case "http.response.body" if response.started and not response.ended:
                more = message.get("more_body", False)
                await response.write(message.get("body", b""), more=more)
                if not more:
                    await response.end()
            case other:
                raise RuntimeError(f"{other!r} is not expected here")

    def _verdict(self, task: asyncio.Task[None]) -> BaseException | None:
        """The error, if there was one."""
        response = self._response
        if task.done() and not task.cancelled() and (error := task.exception()):
            return error
        if self._late:
            late = DeadlineExceeded("the app had not responded when its time was up")
            return None if response.started else late
        if task.cancelled():
            return asyncio.CancelledError("the app cancelled itself")
        if not response.started:
            return NoResponse("the app returned without having responded")
        if not response.ended and not response.lost:
            return IncompleteResponse("the app returned before its response was complete")
        return None

    async def _conclude(self, error: BaseException | None) -> None:
        response = self._response
        self._concluded = True
        if not response.started:
            assert error is not None
            await self.fail(error)
            return
        if error is not None and not (response.lost and isinstance(error, OSError)):
            log(f"request {self._context.aws_request_id} failed in its response", error)
        if response.ended or response.lost:
            return
        try:
            async with asyncio.timeout(self._context.seconds_left()):
                # A stream that ends at the deadline is no failure: clients reconnect.
                await response.end(None if self._late else error)
        except BROKEN as broken:
            log(f"the response could not be ended: {broken!r}")
