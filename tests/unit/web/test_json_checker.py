"""The helper process that checks large JSON bodies: its verdicts, lifetime and limits."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devtools.processes import ROOT
from tailrace.errors import BodyTooLarge, CheckUnavailable, InvalidJson
from tailrace.limits import JSON_EVENT_LOOP_BYTES
from tailrace.web import json_checker
from tailrace.web.json_checker import JsonChecker

LARGE = b"[" + b'{"a":[1,"[,"]}, ' * (JSON_EVENT_LOOP_BYTES // 8) + b"2 ]"


def helper(code: str) -> tuple[str, ...]:
    """The command of a helper that runs some code first."""
    return (
        sys.executable,
        "-c",
        f"import os, sys, time\n{code}\nfrom tailrace.web.json_checker import main\nmain()",
    )


def is_gone(pid: int) -> bool:
    """Whether a child process has ended and was reaped."""
    return not Path(f"/proc/{pid}").exists()


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(120):
        while not is_gone(pid):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.005)


async def test_the_verdict_is_that_of_the_rules() -> None:
    async with JsonChecker() as checker:
        flat = await checker.flatten(LARGE)
        assert flat == (LARGE[1:-2], JSON_EVENT_LOOP_BYTES // 8 + 1)
        assert await checker.flatten(b" {} ") == (b"{}", 1)
        refusal = await checker.flatten(LARGE + b"]")
        assert isinstance(refusal, InvalidJson)
        assert "not valid JSON" in str(refusal)
        assert await asyncio.gather(*(checker.flatten(b"[%d]" % i) for i in range(5))) == [
            (b"%d" % i, 1) for i in range(5)
        ]
        pid = checker.pid
        assert pid is not None
        assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
    assert is_gone(pid)
    with pytest.raises(CheckUnavailable):
        await checker.flatten(b"1")


async def test_a_helper_that_dies_is_replaced() -> None:
    async with JsonChecker() as checker:
        await checker.flatten(b"1")
        first = checker.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        with pytest.raises(CheckUnavailable, match="try again"):
            await checker.flatten(LARGE)
        assert is_gone(first)
        assert await checker.flatten(b"[1,2]") == (b"1,2", 2)
        assert checker.pid != first


async def test_a_helper_that_hangs_is_replaced() -> None:
    async with JsonChecker(helper("time.sleep(1000)"), wait=0.01) as checker:
        for _ in range(2):
            with pytest.raises(CheckUnavailable, match="took too long"):
                await checker.flatten(LARGE)
            assert checker.pid is None


async def test_a_body_that_takes_too_much_cpu_time_is_refused() -> None:
    code = (
        "from tailrace.web import json_checker\n"
        "json_checker._check = lambda _: all(iter(lambda: True, None))\n"
        "json_checker.JSON_CHECK_CPU_SECONDS = 0\n"
        "json_checker.main()\n"
    )
    async with JsonChecker((sys.executable, "-c", code)) as checker:
        with pytest.raises(BodyTooLarge, match="s; send it in parts"):
            await checker.flatten(LARGE)


async def test_an_idle_helper_ends() -> None:
    async with JsonChecker(idle=0.01) as checker:
        await checker.flatten(b"1")
        pid = checker.pid
        assert pid is not None
        await until_gone(pid)
        assert checker.pid is None
        assert await checker.flatten(b"[]") == (b"", 0)


async def test_a_running_check_ends_with_the_server() -> None:
    async with JsonChecker(helper("time.sleep(1000)")) as checker:
        checks = [asyncio.create_task(checker.flatten(LARGE)) for _ in range(2)]
        while (pid := checker.pid) is None:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
    for check in checks:
        with pytest.raises(CheckUnavailable):
            await check
    assert is_gone(pid)


async def test_a_cancelled_check_does_not_leave_its_verdict_to_the_next_one() -> None:
    async with JsonChecker() as checker:
        check = asyncio.create_task(checker.flatten(LARGE))
        while checker.pid is None:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
        check.cancel()
        assert await checker.flatten(b"[1,2,3]") == (b"1,2,3", 3)


async def test_the_helper_ends_when_the_server_dies() -> None:
    code = (
        "import asyncio, os, signal, tailrace.web.json_checker as c\n"
        "async def main():\n"
        "    checker = c.JsonChecker()\n"
        "    await checker.flatten(b'1')\n"
        "    print(checker.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    out, _ = await server.communicate()
    await until_gone(int(out))


def test_the_helper_imports_nothing_of_the_server() -> None:
    code = (
        "import sys, tailrace.web.json_checker;"
        " print(*sorted(m for m in sys.modules if 'tailrace' in m))"
    )
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert set(loaded) == {
        "tailrace",
        "tailrace.errors",
        "tailrace.web.json_checker",
        "tailrace.limits",
        "tailrace.log",
        "tailrace.log.json_mode",
        "tailrace.web",
    }
    assert json_checker.COMMAND[0] == sys.executable
