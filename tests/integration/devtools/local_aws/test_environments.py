"""Lambda's rules: what an environment sees, when one is reused, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools.local_aws.environments import Configuration
from devtools.local_aws.functions import Function
from tests.integration.devtools.local_aws.deploying import SECONDS, deployed, exchange, get

COUNTING = """
    import os
    calls = 0
    def handler(event, context):
        global calls
        calls += 1
        return {"calls": calls, "pid": os.getpid()}
"""

WAITING = """
    import os, time
    def handler(event, context):
        while not os.path.exists(event["rawPath"]):
            time.sleep(0.01)
        return "done"
"""
"""Waits for the file that the request names."""


def value(answer: bytes) -> dict[str, object]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), answer
    found: dict[str, object] = json.loads(body)
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def test_a_warm_environment_is_used_again(tmp_path: Path) -> None:
    async with deployed(tmp_path, COUNTING) as url:
        first, second = value(await exchange(url, get())), value(await exchange(url, get()))
        assert second == {"calls": 2, "pid": first["pid"]}
        assert url.function.cold_starts == 1


async def test_requests_at_once_get_environments_of_their_own(tmp_path: Path) -> None:
    async with deployed(tmp_path, WAITING) as url:
        go = tmp_path / "go"
        waiting = [asyncio.create_task(exchange(url, get(str(go)))) for _ in range(3)]
        await until(lambda: url.function.cold_starts == 3)
        go.touch()
        for answer in await asyncio.gather(*waiting):
            assert answer.startswith(b"HTTP/1.1 200 ")


async def test_beyond_the_reserved_concurrency_it_is_429(tmp_path: Path) -> None:
    async with deployed(tmp_path, WAITING, concurrency=1) as url:
        go = tmp_path / "go"
        slow = asyncio.create_task(exchange(url, get(str(go))))
        await until(lambda: url.function.cold_starts == 1)
        refused = await exchange(url, get("/"))
        assert refused.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
        assert b"x-amzn-errortype: TooManyRequestsException" in refused
        assert b"Rate Exceeded" in refused
        go.touch()
        assert (await slow).startswith(b"HTTP/1.1 200 ")
        assert (await exchange(url, get("/"))).startswith(b"HTTP/1.1 200 ")
        assert url.function.cold_starts == 1


async def test_a_function_that_takes_too_long_is_ended_and_replaced(tmp_path: Path) -> None:
    async with deployed(tmp_path, WAITING, seconds=2) as url:
        late = await exchange(url, get("/never"))
        assert late.startswith(b"HTTP/1.1 502 ")
        assert b"x-amzn-errortype: Sandbox.Timedout" in late
        assert (await exchange(url, get("/"))).startswith(b"HTTP/1.1 200 ")
        assert url.function.cold_starts == 2


async def test_an_environment_whose_process_ended_is_replaced(tmp_path: Path) -> None:
    source = """
        import os
        def handler(event, context):
            if event["rawPath"] == "/die":
                os._exit(3)
            return "alive"
    """
    async with deployed(tmp_path, source) as url:
        died = await exchange(url, get("/die"))
        assert died.startswith(b"HTTP/1.1 502 ")
        assert b"x-amzn-errortype: Runtime.ExitError" in died
        assert (await exchange(url, get("/"))).startswith(b"HTTP/1.1 200 ")
        assert url.function.cold_starts == 2


async def test_an_exec_wrapper_that_is_missing_is_named_in_the_log(tmp_path: Path) -> None:
    settings = {"environment": {"AWS_LAMBDA_EXEC_WRAPPER": "/opt/nowhere"}}
    async with deployed(tmp_path, COUNTING, **settings) as url:
        failed = await exchange(url, get())
        assert failed.startswith(b"HTTP/1.1 502 ")
        assert "opt/nowhere" in url.function.output()


async def test_an_error_in_the_init_phase_is_answered_and_in_the_log(tmp_path: Path) -> None:
    async with deployed(tmp_path, "raise RuntimeError('no table')") as url:
        failed = await exchange(url, get())
        assert failed.startswith(b"HTTP/1.1 502 ")
        assert b"x-amzn-errortype: RuntimeError" in failed
        assert "no table" in url.function.output()


async def test_a_function_has_the_environment_of_lambda_only(tmp_path: Path) -> None:
    source = """
        import os, sys
        def handler(event, context):
            return {"env": dict(os.environ), "cwd": os.getcwd(), "path": sys.path,
                    "left": context.get_remaining_time_in_millis(), "name": context.function_name}
    """
    settings = {"seconds": 70.0, "memory": 256, "environment": {"MINE": "1"}}
    async with deployed(tmp_path, source, **settings) as url:
        seen = value(await exchange(url, get()))
    env = seen["env"]
    assert isinstance(env, dict)
    folder = str(tmp_path / "functions" / "tiny")
    assert env["MINE"] == "1"
    assert env["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "256"
    assert env["LAMBDA_TASK_ROOT"] == seen["cwd"] == f"{folder}/task"
    assert seen["name"] == "tiny"
    assert isinstance(seen["left"], int)
    assert 0 < seen["left"] <= 70_000
    assert {"HOME", "USER", "VIRTUAL_ENV", "SHELL"}.isdisjoint(env)
    path = seen["path"]
    assert isinstance(path, list)
    assert path.index(f"{folder}/task") < path.index(f"{folder}/opt/python")


async def test_layers_lie_one_over_the_other(tmp_path: Path) -> None:
    for name in ("one", "two"):
        package = tmp_path / name / "python" / "both"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"WHO = {name!r}\n")
        (package / f"{name}.py").write_text("")
    source = """
        import both, both.one, both.two
        def handler(event, context):
            return both.WHO
    """
    layers = (tmp_path / "one", tmp_path / "two")
    async with deployed(tmp_path, source, layers=layers) as url:
        assert (await exchange(url, get())).endswith(b"\r\n\r\ntwo")


async def test_an_invocation_goes_on_when_the_client_leaves(tmp_path: Path) -> None:
    source = f"""
        import pathlib, time
        folder = pathlib.Path({str(tmp_path)!r})
        def handler(event, context):
            (folder / "begun").touch()
            while not (folder / "left").exists():
                time.sleep(0.01)
            (folder / "done").touch()
    """
    async with deployed(tmp_path, source) as url:
        _, writer = await asyncio.open_connection("127.0.0.1", url.port)
        writer.write(get())
        await until((tmp_path / "begun").exists)
        writer.close()
        await writer.wait_closed()
        (tmp_path / "left").touch()
        await until((tmp_path / "done").exists)


async def test_closing_ends_every_process(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "handler.py").write_text("import os\ndef handler(e, c): return os.getpid()\n")
    function = await Function(Configuration(name="tiny", code=code), tmp_path).start()
    answer = await function.invoke({})
    pid = int(b"".join([piece async for piece in answer.body()]))
    os.kill(pid, 0)
    await function.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
