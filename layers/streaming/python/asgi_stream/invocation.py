"""One request on its way through the app."""

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
"""Before the deadline the app is told that its client has left. At the deadline itself the platform
would break the response off and throw the environment away."""

CANCEL_SECONDS = 0.25
"""Before the deadline an app that has not ended is cancelled. What is left is for the end of the
response to be sent and taken, in a small function with little of the processor."""

CLEAN_UP_SECONDS = 0.1
"""For a cancelled app to end; one that does not is left behind."""


class Invocation:
    def __init__(self, connection: Connection, context: Context, padding: int) -> None:
        self._connection = connection
        self._context = context
        self._path = f"/invocation/{context.aws_request_id}"
        given = context.invocation_id
        self._echo = {"Lambda-Runtime-Invocation-Id": given} if given else {}
        self._over = asyncio.Event()
        """Nothing that the app sends from now on is read, as far as it is concerned."""
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
        """Reports the error; the response has not begun."""
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
        """What went wrong, if anything did."""
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
                # A stream that its deadline ends is no failure: clients connect again.
                await response.end(None if self._late else error)
        except BROKEN as broken:
            log(f"the response could not be ended: {broken!r}")
