"""Aviso in the packaged functions: `http` publishes, `live` streams and may only read."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pyaviso
import pytest
import shapely
import yaml

from scripts.package import LAYERS, build
from tailrace.aviso.config import Config
from tailrace.errors import BadSetting
from tailrace.settings import Settings
from tailrace.store.dynamo.provision import connect
from tests.aviso.tools import SCHEMA, SQUARE, WORKING
from tests.e2e.environments import Configuration
from tests.e2e.events import Request
from tests.e2e.function_url import FunctionUrl
from tests.e2e.functions import Function
from tests.engines import Engine, fresh_name

SECRET = "the-origin-secret"
LIVE = ("/api/v1/watch", "/api/v1/replay")


class Front(FunctionUrl):
    """What the edge does: it knows which function answers, and shows the secret."""

    def __init__(self, http: Function, live: Function) -> None:
        super().__init__(http, "functions.example", streaming=True)
        self._http, self._live = http, live

    async def _serve(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        self.function = self._live if request.target in LIVE else self._http
        shown = [*request.headers, ("x-tailrace-origin", SECRET)]
        return await super()._serve(replace(request, headers=shown), writer)


@pytest.fixture
async def front(
    aws: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Front]:
    for name, value in aws.env.items():
        monkeypatch.setenv(name, value)
    table = fresh_name("aviso")
    made = await connect(Settings(store="dynamodb", table=table, create_table=True))
    await made.close()
    endpoints = {name: value for name, value in aws.env.items() if "ENDPOINT" in name}
    environment = {
        **endpoints,
        "TAILRACE_TABLE": table,
        "TAILRACE_ORIGIN_SECRET": SECRET,
        "TAILRACE_ACCESS": "open",
        "TAILRACE_AVISO_SCHEMA": str(SCHEMA),
        "TAILRACE_AVISO_MAX_DURATION": "3",
        "POWERTOOLS_METRICS_NAMESPACE": "Tailrace",
        "POWERTOOLS_SERVICE_NAME": "tailrace",
        "POWERTOOLS_TRACE_DISABLED": "true",
    }
    assets = build("host")
    libraries = tmp_path / "libraries"
    _collect(libraries / "python")

    async def start(name: str, handler: str, **more: str) -> Function:
        layers = tuple(assets / "layers" / layer for layer in LAYERS[name])
        configuration = Configuration(
            name=name,
            code=assets / "functions" / name,
            handler=handler,
            layers=(*layers, libraries),
            seconds=30,
            environment={**environment, **more},
        )
        return await Function(configuration, tmp_path).start()

    http = await start("http", "handler.handler")
    live = await start("live", "handler.app", AWS_LAMBDA_EXEC_WRAPPER="/opt/asgi-stream")
    front = await Front(http, live).start()
    yield front
    await front.close()
    for function in (http, live):
        print(function.output())
        await function.close()


def _collect(folder: Path) -> None:
    """The layer that Aviso needs besides those there are."""
    folder.mkdir(parents=True)
    site = Path(shapely.__file__).parent.parent
    assert site == Path(yaml.__file__).parent.parent
    for name in ("yaml", "_yaml", "shapely", "shapely.libs", "numpy", "numpy.libs"):
        if (site / name).exists():
            (folder / name).symlink_to(site / name)


async def test_pyaviso_talks_to_the_functions(front: Front) -> None:
    await asyncio.to_thread(_talk, pyaviso.AvisoClient(base_url=front.url))


def _talk(client: Any) -> None:
    def publish(step: int) -> None:
        client.notify(event_type="product", identifier={**WORKING, "step": step})

    assert client.schema().total_schemas == 6
    publish(1)
    listener = client.listen("product", start_from=0)
    received = (notification.sequence for notification in listener)
    assert next(received) == 1
    publish(2)
    assert next(received) == 2
    # Longer than a watch lasts: it comes back, and goes on.
    for sequence in range(3, 10):
        publish(sequence)
        assert next(received) == sequence
        time.sleep(0.5)
    listener.close()
    replayed = client.listen(
        "product", filter={"step": {"between": [4, 6]}}, start_from=0, mode="replay_only"
    )
    assert [notification.sequence for notification in replayed] == [4, 5, 6]
    client.notify(event_type="area", identifier={"name": "here", "polygon": SQUARE})
    near = client.listen("area", filter={"point": "5,5"}, start_from=0, mode="replay_only")
    assert [notification.identifier["name"] for notification in near] == ["here"]
    client.wipe_all()
    empty = client.listen("product", filter={"time": "6"}, start_from=0, mode="replay_only")
    assert list(empty) == []


async def test_a_schema_may_be_in_s3(aws: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in aws.env.items():
        monkeypatch.setenv(name, value)
    s3, bucket = boto3.client("s3"), fresh_name("schemas")
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="a/b.yaml", Body=SCHEMA.read_bytes())
    config = Config.load(Settings(aviso_schema=f"s3://{bucket}/a/b.yaml"))
    assert len(config.events) == 6
    with pytest.raises(BadSetting, match=rf"cannot read s3://{bucket}/nothing: .*NoSuchKey"):
        Config.load(Settings(aviso_schema=f"s3://{bucket}/nothing"))
    s3.close()


ALONE = """
import asyncio, sys
for name in ("fastapi", "starlette", "pydantic", "shapely", "numpy", "boto3", "uvicorn", "click"):
    sys.modules[name] = None
from tailrace.http.asgi import Application
from tailrace.http.wire import Request
from tailrace.settings import Settings
routes = Application(Settings(read_only=True, data=sys.argv[1])).aviso
print(asyncio.run(routes.respond(Request("GET", "/api/v1/schema", "", [], b""))).status)
"""


def test_what_has_no_shapes_needs_neither_fastapi_nor_numpy(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path / "data")], capture_output=True, text=True
    )
    assert done.stdout == "200\n", done.stderr
