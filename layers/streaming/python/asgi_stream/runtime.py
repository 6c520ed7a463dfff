"""The runtime loop: init, then one invocation after another."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from typing import Any

from asgi_stream.asgi import App
from asgi_stream.connection import BROKEN, Answer, Connection
from asgi_stream.context import Context
from asgi_stream.event import read_request
from asgi_stream.faults import MalformedEvent, RuntimeApiError, StartupFailed, kind, log, report
from asgi_stream.handler import load
from asgi_stream.invocation import Invocation
from asgi_stream.lifespan import Lifespan

PADDING = 64
"""Default of ASGI_STREAM_PADDING: bytes of a comment after each server-sent event."""


def main() -> int:
    """Run until SIGTERM or a fatal error; return the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A pipe: unflushed output would be stuck while the environment is frozen.
        sys.stdout.reconfigure(line_buffering=True)
    address = os.environ["AWS_LAMBDA_RUNTIME_API"]
    try:
        # Before an event loop runs: some apps run one of their own when they are imported.
        loop = Loop(load(os.environ.get("_HANDLER", "")), address)
    except Exception as error:  # noqa: BLE001 - whatever the app's modules raise
        asyncio.run(fail_init(address, error))
        return 1
    return asyncio.run(loop.run())


async def fail_init(address: str, error: Exception) -> None:
    log("init failed", error)
    headers = {"Lambda-Runtime-Function-Error-Type": kind(error)}
    try:
        await Connection(address).call("POST", "/init/error", headers, report(error))
    except BROKEN as broken:
        log(f"the error could not be reported: {broken!r}")


class Loop:
    def __init__(self, app: App, address: str) -> None:
        self._app = app
        self._address = address
        self._pollers = int(os.environ.get("AWS_LAMBDA_MAX_CONCURRENCY") or 1)
        self._padding = int(os.environ.get("ASGI_STREAM_PADDING") or PADDING)

    async def run(self) -> int:
        lifespan = Lifespan(self._app)
        try:
            await lifespan.start()
        except StartupFailed as error:
            await fail_init(self._address, error)
            return 1
        terminated = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
        pollers = [asyncio.create_task(self._poll(lifespan.state)) for _ in range(self._pollers)]
        tasks = [asyncio.create_task(terminated.wait()), *pollers]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await lifespan.stop()
        broken = [failure for task in done if (failure := task.exception())]
        for failure in broken:
            log("the loop ended", failure)
        return 1 if broken else 0

    async def _poll(self, state: dict[str, Any]) -> None:
        connection = Connection(self._address)
        while True:
            try:
                answer = await connection.call("GET", "/invocation/next")
            except BROKEN as broken:
                raise RuntimeApiError(f"no invocation from {self._address}") from broken
            if answer.status != 200:
                raise RuntimeApiError(f"the Runtime API returned no invocation: {answer}")
            await self._serve(connection, answer, state)

    async def _serve(
        self, connection: Connection, invocation_answer: Answer, state: dict[str, Any]
    ) -> None:
        context = Context(invocation_answer.headers)
        if self._pollers == 1:
            # The variable is per process, so it is only set if there is one invocation at a time.
            os.environ.pop("_X_AMZN_TRACE_ID", None)
            if context.xray_trace_id:
                os.environ["_X_AMZN_TRACE_ID"] = context.xray_trace_id
        invocation = Invocation(connection, context, self._padding)
        try:
            scope, body = read_request(invocation_answer.body)
        except MalformedEvent as error:
            await invocation.fail(error)
            return
        scope["state"] = state.copy()
        scope["aws.context"] = context
        await invocation.run(self._app, scope, body)
