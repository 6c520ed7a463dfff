"""A bare ASGI app: a route for each thing that a runtime has to get right."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SSE = [(b"content-type", b"text/event-stream")]
TEXT = [(b"content-type", b"text/plain")]
PIECE = 64 * 1024

seen: list[str] = []
"""Values that requests leave behind for `recall`."""
present: list[object] = []
"""The requests to `together`."""


@dataclass
class Http:
    """One request and its response."""

    scope: MutableMapping[str, Any]
    receive: Receive
    send: Send

    @property
    def query(self) -> str:
        return str(self.scope["query_string"].decode())

    async def start(self, status: int = 200, headers: Iterable[tuple[Any, Any]] = TEXT) -> None:
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def body(self, data: bytes, *, more: bool = False) -> None:
        await self.send({"type": "http.response.body", "body": data, "more_body": more})


Route = Callable[[Http], Awaitable[None]]
ROUTES: dict[str, Route] = {}


def route(function: Route) -> Route:
    ROUTES[function.__name__] = function
    return function


async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        raise ValueError("http only")
    await ROUTES[scope["path"].split("/")[1]](Http(scope, receive, send))


@route
async def echo(http: Http) -> None:
    """The request, as the app sees it."""
    scope, message = http.scope, await http.receive()
    context = scope["aws.context"]
    names = ("method", "path", "scheme", "http_version", "client", "server", "root_path")
    shown = {name: scope[name] for name in names}
    shown |= {
        "raw_path": scope["raw_path"].decode("latin-1"),
        "query_string": http.query,
        "headers": [[name.decode(), value.decode()] for name, value in scope["headers"]],
        "body": message["body"].decode("latin-1"),
        "more_body": message["more_body"],
        "event": scope["aws.event"],
        "request_id": context.aws_request_id,
        "arn": context.invoked_function_arn,
        "function": [context.function_name, context.memory_limit_in_mb],
        "client_context": context.client_context,
        "cognito": context.cognito_identity,
        "left": context.get_remaining_time_in_millis(),
        "trace": context.xray_trace_id,
        "environment_trace": os.environ.get("_X_AMZN_TRACE_ID"),
    }
    await http.start()
    await http.body(json.dumps(shown).encode())


@route
async def recall(http: Http) -> None:
    """Report what earlier requests left behind, and where and how the process runs."""
    await http.start()
    shown = {"seen": seen, "path": sys.path, "argv": sys.orig_argv}
    await http.body(json.dumps(shown).encode())


@route
async def events(http: Http) -> None:
    """Small events; after each it waits for a file that says that the event has arrived."""
    await http.start(headers=SSE)
    for number in range(4):
        await http.body(b"data: %d\n\n" % number, more=True)
        await until_arrived(http.query, number)
    await http.body(b"")


def arrived(directory: str, number: int) -> bool:
    return Path(directory, str(number)).exists()


async def until_arrived(directory: str, number: int = 0) -> None:
    while directory and not arrived(directory, number):  # noqa: ASYNC110 - a file
        await asyncio.sleep(0.01)


@route
async def halves(http: Http) -> None:
    """Events that do not end where the pieces do."""
    await http.start(headers=SSE)
    for piece in (b"data: a\n", b"data: b\n", b"\n", b"data: c\r\n\r", b"\n", b"data: d\n\ndata: "):
        await http.body(piece, more=True)
    await http.body(b"e\n\n")


@route
async def zipped(http: Http) -> None:
    await http.start(headers=[*SSE, (b"content-encoding", b"gzip")])
    await http.body(b"not really\n\n", more=True)
    await http.body(b"")


@route
async def paragraphs(http: Http) -> None:
    await http.start()
    await http.body(b"one\n\n", more=True)
    await http.body(b"two\n\n")


@route
async def large(http: Http) -> None:
    """As many megabytes as the query says."""
    await http.start()
    for number in range(int(http.query) * 16):
        await http.body(b"%016d" % number * (PIECE // 16), more=True)
    await http.body(b"")


@route
async def binary(http: Http) -> None:
    await http.start(headers=[])
    await http.body(bytes(range(256)) * 4)


@route
async def headers(http: Http) -> None:
    fields = [
        (b"Content-Length", b"2"),
        (b"Content-Type", b"text/plain"),
        (b"Set-Cookie", b"a=1; Path=/"),
        (b"X-Many", b"one"),
        (b"set-cookie", b"b=2"),
        (b"x-many", b"two"),
        (b"x-odd", b'caf\xe9 "\\ \x00 end'),
    ]
    await http.start(201, fields)
    await http.body(b"ok")


@route
async def empty(http: Http) -> None:
    await http.start(int(http.query), [])
    await http.body(b"")


@route
async def early(http: Http) -> None:
    await until_arrived(http.query)
    raise LookupError("nothing was sent")


@route
async def midway(http: Http) -> None:
    await http.start(headers=SSE)
    await http.body(b"data: first\n\n", more=True)
    raise LookupError("in the middle: ü")


@route
async def silent(_: Http) -> None:
    """No response at all."""


@route
async def half(http: Http) -> None:
    await http.start()
    await http.body(b"half", more=True)


@route
async def bodiless(http: Http) -> None:
    await http.body(b"no start")


@route
async def unencoded(http: Http) -> None:
    await http.start(headers=[("content-type", "text/plain")])


@route
async def cancelled(_: Http) -> None:
    raise asyncio.CancelledError


@route
async def after(http: Http) -> None:
    """Goes on when its response is complete."""
    await http.start()
    await http.body(b"done")
    await http.receive()
    seen.append((await http.receive())["type"])
    await asyncio.sleep(0.3)
    seen.append("after")
    print("printed after the response")
    raise LookupError("after the response")


@route
async def quiet(http: Http) -> None:
    """A stream without an event, that ends when its client leaves."""
    await http.start(headers=SSE)
    await http.receive()
    seen.append((await http.receive())["type"])


@route
async def sulky(http: Http) -> None:
    """Takes it badly that its client leaves."""
    await http.start(headers=SSE)
    await http.receive()
    raise LookupError((await http.receive())["type"])


@route
async def stubborn(http: Http) -> None:
    """Sends for ever and never asks whether anybody listens."""
    await http.start(headers=SSE)
    while True:
        await http.body(b"data: more\n\n", more=True)
        await asyncio.sleep(0.1)


@route
async def slow(_: Http) -> None:
    await asyncio.sleep(60)


@route
async def deaf(http: Http) -> None:
    """Survives being cancelled, and answers when nobody waits for it any more."""
    while not arrived(http.query, 0):
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            seen.append("cancelled")
    try:
        await http.start()
    except OSError as error:
        seen.append(str(error))


@route
async def flood(http: Http) -> None:
    """Sends until it is told that it cannot."""
    await http.start()
    try:
        while True:
            await http.body(bytes(PIECE), more=True)
            await asyncio.sleep(0.01)
    except OSError:
        await http.receive()
        seen.append((await http.receive())["type"])
        raise


@route
async def pause(http: Http) -> None:
    """Answers when a file is there; without a query, at once."""
    await until_arrived(http.query)
    await answer(http)


@route
async def together(http: Http) -> None:
    """Answers when as many requests as the query says are here at once."""
    present.append(http)
    while len(present) < int(http.query):  # noqa: ASYNC110 - other requests
        await asyncio.sleep(0.01)
    await answer(http)


async def answer(http: Http) -> None:
    await http.start()
    trace = os.environ.get("_X_AMZN_TRACE_ID", "none")
    await http.body(f"{trace} {http.scope['aws.context'].xray_trace_id}".encode())
