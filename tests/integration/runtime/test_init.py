"""From the start of the process to the first invocation, and its end."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devtools.local_aws.runtime_api import Failed, RuntimeApi
from tests.integration.runtime.conftest import (
    LAYER,
    SECONDS,
    Runtime,
    event,
    streamed,
    until,
)


@pytest.mark.parametrize(
    ("handler", "kind", "message"),
    [
        ("nothing.app", "Runtime.ImportModuleError", "No module named 'nothing'"),
        ("plain.nothing", "Runtime.HandlerNotFound", "'plain' has no callable 'nothing'"),
        ("plain.PIECE", "Runtime.HandlerNotFound", "'PIECE'"),
        ("plain", "Runtime.MalformedHandlerName", "'plain'"),
        ("broken.app", "Function.KeyError", "NO_SUCH_SETTING"),
        ("syntax.app", "Runtime.ImportModuleError", "syntax.py, line 1"),
        ("lifespans.failing", "Runtime.StartupFailed", "no database"),
    ],
)
async def test_an_app_that_cannot_be_started_is_an_init_error(
    api: RuntimeApi, runtime: Runtime, handler: str, kind: str, message: str
) -> None:
    (runtime.task_root / "syntax.py").write_text("def app(:\n")
    runtime.start(api.address, handler)
    invocation = api.invoke(event("/"), seconds=SECONDS)
    with pytest.raises(Failed, match="init failed"):
        await invocation.begun()
    assert api.init_error is not None
    assert api.init_error.kind == kind
    assert message in api.init_error.body["errorMessage"]
    assert isinstance(api.init_error.body["stackTrace"], list)
    assert await runtime.exit_code() == 1
    assert message in runtime.output()


async def test_the_trace_of_an_import_error_shows_the_app(
    api: RuntimeApi, runtime: Runtime
) -> None:
    (runtime.task_root / "outer.py").write_text("import not_packaged\n")
    runtime.start(api.address, "outer.app")
    assert await runtime.exit_code() == 1
    assert api.init_error is not None
    assert "import not_packaged" in api.init_error.body["stackTrace"][-1]


async def test_a_bad_setting_is_an_init_error(api: RuntimeApi, runtime: Runtime) -> None:
    runtime.start(api.address, env={"ASGI_STREAM_PADDING": "some"})
    assert await runtime.exit_code() == 1
    assert api.init_error is not None
    assert "'some'" in api.init_error.body["errorMessage"]


@pytest.mark.parametrize("handler", ["package/inner.app", "package.inner.app"])
async def test_a_handler_may_be_in_a_package(
    api: RuntimeApi, runtime: Runtime, handler: str
) -> None:
    (runtime.task_root / "package").mkdir()
    (runtime.task_root / "package" / "inner.py").write_text("from plain import app\n")
    runtime.start(api.address, handler)
    assert (await streamed(api.invoke(event("/binary"), seconds=SECONDS))).status == 200


async def test_the_lifespan_begins_before_and_ends_after_all_requests(
    api: RuntimeApi, runtime: Runtime
) -> None:
    runtime.start(api.address, "lifespans.full")
    for visits in (["/a"], ["/a", "/b"]):
        state = json.loads((await streamed(api.invoke(event(visits[-1]), seconds=SECONDS))).body)
        assert state == {"visits": visits, "name": "full, seen by a request"}
    await until(lambda: api.waiting)
    runtime.process.send_signal(signal.SIGTERM)
    assert await runtime.exit_code() == 0
    assert runtime.output() == "shut down\n"


@pytest.mark.parametrize(
    ("handler", "logged"),
    [
        ("plain.app", "does not support lifespan: ValueError('http only')"),
        ("lifespans.returning", ""),
        ("lifespans.crashing", "the lifespan crashed"),
    ],
)
async def test_apps_without_lifespan_support_are_served(
    api: RuntimeApi, runtime: Runtime, handler: str, logged: str
) -> None:
    runtime.start(api.address, handler)
    assert (await streamed(api.invoke(event("/binary"), seconds=SECONDS))).status == 200
    await until(lambda: api.waiting)
    runtime.process.send_signal(signal.SIGTERM)
    assert await runtime.exit_code() == 0
    assert logged in runtime.output()


async def test_sigterm_ends_a_request_that_runs(api: RuntimeApi, runtime: Runtime) -> None:
    runtime.start(api.address)
    invocation = api.invoke(event("/quiet"), seconds=SECONDS)
    await invocation.begun()
    runtime.process.send_signal(signal.SIGTERM)
    assert await runtime.exit_code() == 0


async def test_many_invocations_share_one_process_and_its_loop(runtime: Runtime) -> None:
    async with RuntimeApi(concurrency=4) as api:
        runtime.start(api.address, env={"AWS_LAMBDA_MAX_CONCURRENCY": "4"})
        await until(lambda: api.waiting)
        invocations = [
            api.invoke(event("/together", "4"), seconds=SECONDS, trace=f"Root={number}")
            for number in range(4)
        ]
        bodies = [(await streamed(invocation)).body for invocation in invocations]
        assert bodies == [f"none Root={number}".encode() for number in range(4)]
        assert api.connections == 4


async def test_layers_may_hold_packages_in_both_places(
    api: RuntimeApi, runtime: Runtime, tmp_path: Path
) -> None:
    """The merged layers of a function, as they are in /opt."""
    opt = tmp_path / "opt"
    shutil.copytree(LAYER, opt, ignore=shutil.ignore_patterns("__pycache__"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = opt / "python" / "lib" / version / "site-packages"
    site.mkdir(parents=True)
    (site / "versioned.py").write_text("from plain import app\n")
    (opt / "python" / "layered.py").write_text("from versioned import app\n")
    runtime.start(api.address, "layered.app", wrapper=opt / "asgi-stream")
    assert (await streamed(api.invoke(event("/binary"), seconds=SECONDS))).status == 200


def test_the_version_is_taken_from_the_name_of_the_interpreter(tmp_path: Path) -> None:
    """So that a cold start does not pay for asking it."""
    python = tmp_path / "python3.99"
    python.write_text('#!/bin/sh\necho "$PYTHONPATH" "$@"\n')
    python.chmod(0o755)
    shown = subprocess.run(
        [LAYER / "asgi-stream", python, "-X", "a b", "bootstrap.py"],
        env={"LAMBDA_TASK_ROOT": "/var/task"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    layer = f"{LAYER}/python"
    path = f"/var/task:{layer}/lib/python3.99/site-packages:{layer}"
    assert shown == f"{path} -X a b -P -m asgi_stream\n"


def test_the_runtime_is_cheap_to_import() -> None:
    """Of the standard library it takes what asyncio has brought anyway, and JSON."""
    code = "import __future__, asyncio, json, sys; before = set(sys.modules); "
    code += "import asgi_stream.runtime; print(*sorted(set(sys.modules) - before))"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(LAYER / "python")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [name for name in shown.split() if not name.startswith("asgi_stream")] == []
