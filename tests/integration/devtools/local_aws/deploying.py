"""Tiny functions for the tests of the harness itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

from devtools.local_aws.environments import Configuration
from devtools.local_aws.function_url import FunctionUrl
from devtools.local_aws.functions import Function

SECONDS = 120.0
"""How long anything may take: a safety net, not a measure."""

STREAMING_RUNTIME = """\
    import http.client, json, os, sys, time
    sys.path.insert(0, os.environ["LAMBDA_TASK_ROOT"])
    api, base = os.environ["AWS_LAMBDA_RUNTIME_API"], "/2018-06-01/runtime/invocation/"
    import app
    while True:
        connection = http.client.HTTPConnection(api)
        connection.request("GET", base + "next")
        given = connection.getresponse()
        event, request_id = json.loads(given.read()), given.headers["Lambda-Runtime-Aws-Request-Id"]
        connection.close()
        connection = http.client.HTTPConnection(api)
        connection.putrequest("POST", f"{base}{request_id}/response")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.putheader("Lambda-Runtime-Function-Response-Mode", "streaming")
        connection.putheader("Content-Type", "application/vnd.awslambda.http-integration-response")
        connection.putheader(
            "Trailer", "Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body")
        connection.endheaders()
        for piece in app.handler(event):
            connection.send(b"%x\\r\\n%b\\r\\n" % (len(piece), piece))
        trailers = getattr(app, "TRAILERS", b"")
        connection.send(b"0\\r\\n" + trailers + b"\\r\\n")
        connection.getresponse().read()
"""
"""A runtime that streams what the generator `app.handler` yields; started as an exec wrapper."""


@asynccontextmanager
async def deployed(folder: Path, source: str, **settings: Any) -> AsyncIterator[FunctionUrl]:
    """A function of this source behind a buffered URL."""
    code = _written(folder / "code", "handler.py", source)
    settings.setdefault("seconds", SECONDS)
    async with _running(Configuration(name="tiny", code=code, **settings), folder, False) as url:
        yield url


@asynccontextmanager
async def deployed_streaming(
    folder: Path, source: str, **settings: Any
) -> AsyncIterator[FunctionUrl]:
    """A function of this source, which has a generator `handler`, behind a streaming URL."""
    code = _written(folder / "code", "app.py", source)
    settings.setdefault("seconds", SECONDS)
    layer = _written(folder / "layer", "loop.py", STREAMING_RUNTIME)
    wrapper = layer / "wrapper"
    wrapper.write_text('#!/bin/sh\nexec "$1" "$(dirname "$0")/loop.py"\n')
    wrapper.chmod(0o755)
    configuration = Configuration(
        name="tiny",
        code=code,
        layers=(layer,),
        environment={"AWS_LAMBDA_EXEC_WRAPPER": "/opt/wrapper"},
        **settings,
    )
    async with _running(configuration, folder, True) as url:
        yield url


async def exchange(url: FunctionUrl, request: bytes) -> bytes:
    """Every byte that comes back until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", url.port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


def get(target: str = "/", *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    """A request after whose answer the connection ends."""
    lines = [f"{method} {target} HTTP/1.1", "Host: tiny.example", "Connection: close", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def _running(
    configuration: Configuration, folder: Path, streaming: bool
) -> AsyncIterator[FunctionUrl]:
    function = await Function(configuration, folder / "functions").start()
    url = await FunctionUrl(
        function, "tiny.lambda-url.us-east-1.on.aws", streaming=streaming
    ).start()
    try:
        yield url
    finally:
        await url.close()
        await function.close()


def _written(folder: Path, name: str, source: str) -> Path:
    folder.mkdir(parents=True)
    (folder / name).write_text(dedent(source))
    return folder
