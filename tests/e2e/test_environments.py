"""Lambda's rules: what an environment sees, when one is reused, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from tests.e2e.deploying import deployed, exchange, get
from tests.e2e.environments import Configuration
from tests.e2e.functions import Function

COUNTING = """
    import os
    calls = 0
    def handler(event, context):
        global calls
        calls += 1
        return {"calls": calls, "pid": os.getpid()}
"""

WAITING = """
    import time
    def handler(event, context):
        time.sleep(float(event["rawPath"][1:]))
        return "done"
"""


def value(answer: bytes) -> dict[str, object]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), answer
    found: dict[str, object] = json.loads(body)
    return found


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 10
    while not file.exists():
        assert time.monotonic() < deadline, f"{file.name} never came"
        time.sleep(0.02)


async def test_a_warm_environment_is_used_again(tmp_path: Path) -> None:
    async with deployed(tmp_path, COUNTING) as url:
        first, second = value(await exchange(url, get())), value(await exchange(url, get()))
        assert second == {"calls": 2, "pid": first["pid"]}
        assert url.function.cold_starts == 1


async def test_requests_at_once_get_environments_of_their_own(tmp_path: Path) -> None:
    async with deployed(tmp_path, WAITING) as url:
        await asyncio.gather(*(exchange(url, get("/0.3")) for _ in range(3)))
        assert url.function.cold_starts == 3


async def test_beyond_the_reserved_concurrency_it_is_429(tmp_path: Path) -> None:
    async with deployed(tmp_path, WAITING, concurrency=1) as url:
        slow = asyncio.create_task(exchange(url, get("/1")))
        await asyncio.sleep(0.1)
        refused = await exchange(url, get("/0"))
        assert refused.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
        assert b"x-amzn-errortype: TooManyRequestsException" in refused
        assert b"Rate Exceeded" in refused
        assert (await slow).startswith(b"HTTP/1.1 200 ")
        assert (await exchange(url, get("/0"))).startswith(b"HTTP/1.1 200 ")
        assert url.function.cold_starts == 1


async def test_a_function_that_takes_too_long_is_ended_and_replaced(tmp_path: Path) -> None:
    async with deployed(tmp_path, WAITING, seconds=0.5) as url:
        late = await exchange(url, get("/5"))
        assert late.startswith(b"HTTP/1.1 502 ")
        assert b"x-amzn-errortype: Sandbox.Timedout" in late
        assert (await exchange(url, get("/0"))).startswith(b"HTTP/1.1 200 ")
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


async def test_a_function_sees_what_lambda_sets_and_nothing_of_the_machine(tmp_path: Path) -> None:
    source = """
        import os, sys
        def handler(event, context):
            return {"env": dict(os.environ), "cwd": os.getcwd(), "path": sys.path,
                    "left": context.get_remaining_time_in_millis(), "name": context.function_name}
    """
    settings = {"seconds": 7.0, "memory": 256, "environment": {"MINE": "1"}}
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
    assert 0 < seen["left"] <= 7_000
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
        def handler(event, context):
            time.sleep(0.3)
            pathlib.Path({str(tmp_path / "done")!r}).touch()
    """
    async with deployed(tmp_path, source) as url:
        _, writer = await asyncio.open_connection("127.0.0.1", url.port)
        writer.write(get())
        await asyncio.sleep(0.1)
        writer.close()
        await asyncio.to_thread(wait_for, tmp_path / "done")


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
