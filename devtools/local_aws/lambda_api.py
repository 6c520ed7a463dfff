"""The part of Lambda's API that invokes functions."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, Final, Self
from urllib.parse import unquote

from devtools.local_aws.environments import REGION
from devtools.local_aws.events import MOST_BYTES, Request
from devtools.local_aws.functions import Function, Throttled
from devtools.local_aws.http_server import Api, refusal
from devtools.local_aws.replies import Reply
from devtools.local_aws.runtime_api import Failure
from devtools.local_aws.sigv4 import check_signature

EVENT_BYTES: Final = 1 << 20
"""The maximum size of the event of an asynchronous invocation."""
RETRIES: Final = 2

_KIND: Final = "x-amz-invocation-type"
_PATH: Final = re.compile(r"/2015-03-31/functions/([^/?]+)/invocations(?:\?.*)?")
_NAME: Final = re.compile(
    rf"(?:arn:aws:lambda:{REGION}:\d{{12}}:function:)?([A-Za-z0-9-_]+)(?::[A-Za-z0-9-_$]+)?"
)


class LambdaApi:
    """Invokes functions by name or ARN.

    An asynchronous invocation continues after the response, and is retried `retry_seconds` after a
    failure. AWS waits one minute before the first retry and two before the second."""

    def __init__(self, functions: Mapping[str, Function], *, retry_seconds: float = 0.1) -> None:
        self.functions = functions
        self.discarded: list[Failure] = []
        """The errors of asynchronous invocations that were not retried."""
        self._retry_seconds = retry_seconds
        self._server = Api(self._handle)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def url(self) -> str:
        return self._server.url

    async def start(self) -> Self:
        await self._server.start()
        return self

    async def close(self) -> None:
        await self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _handle(self, request: Request) -> Reply:
        if error := check_signature(request, "lambda"):
            return error
        path = _PATH.fullmatch(request.target)
        if request.method != "POST" or path is None:
            return refusal(404, "UnknownOperationException", "no such operation")
        name = _NAME.fullmatch(unquote(path[1]))
        function = self.functions.get(name[1]) if name else None
        if function is None:
            return _refusal(
                404, "ResourceNotFoundException", f"Function not found: {unquote(path[1])}"
            )
        kinds = [value for name, value in request.headers if name.lower() == _KIND]
        kind = kinds[0] if kinds else "RequestResponse"
        if len(request.body) > (EVENT_BYTES if kind == "Event" else MOST_BYTES):
            return _refusal(413, "RequestTooLargeException", "the payload is too large")
        try:
            event = json.loads(request.body or b"{}")
        except ValueError:
            return _refusal(400, "InvalidRequestContentException", "the payload is not JSON")
        if kind == "Event":
            task = asyncio.create_task(self._run(function, event))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return Reply(202)
        if kind == "RequestResponse":
            return await _invoke(function, event)
        return _refusal(400, "InvalidParameterValueException", f"the type {kind}")

    async def _run(self, function: Function, event: Any) -> None:
        failures: list[Failure] = []
        while len(failures) <= RETRIES:
            try:
                _, failure = await outcome(function, event)
            except Throttled:
                pass  # Lambda retries for hours: being throttled does not count as a failure.
            else:
                if failure is None:
                    return
                failures.append(failure)
            await asyncio.sleep(self._retry_seconds)
        self.discarded.append(failures[-1])


async def outcome(
    function: Function, event: Any, *, trace: str = ""
) -> tuple[bytes, Failure | None]:
    """The complete response of a function, and its error if it failed; may raise `Throttled`."""
    answer = await function.invoke(event, trace=trace)
    payload = b"".join([piece async for piece in answer.body()])
    return payload, answer.failure


async def _invoke(function: Function, event: Any) -> Reply:
    try:
        payload, failure = await outcome(function, event)
    except Throttled:
        return _refusal(429, "TooManyRequestsException", "Rate Exceeded.")
    headers = [("content-type", "application/json"), ("x-amz-executed-version", "$LATEST")]
    if failure is not None:
        headers.append(("x-amz-function-error", "Unhandled"))
        payload = json.dumps(failure.body).encode()
    return Reply(200, headers, payload)


def _refusal(status: int, kind: str, message: str) -> Reply:
    """An error response of Lambda, which includes whether the client or the server is at fault."""
    reply = refusal(status, kind, message)
    body = json.dumps({"Type": "User", "message": message}).encode()
    return Reply(reply.status, reply.headers, body)
