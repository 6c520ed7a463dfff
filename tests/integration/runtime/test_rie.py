"""The runtime under AWS's own runtime interface emulator.

It keeps a response until it is complete, so it says nothing about time; but it is AWS's own reader
of what the runtime writes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from devtools.processes import ROOT, free_port
from tests.integration.runtime.conftest import APPS, LAYER, SECONDS, WRAPPER, event, parsed

RIE = ROOT / ".engines" / "rie" / "aws-lambda-rie"
BOOTSTRAP = """#!/bin/sh
exec "$AWS_LAMBDA_EXEC_WRAPPER" "$TEST_PYTHON" /var/runtime/bootstrap.py
"""


class Emulator:
    def __init__(self, port: int, log: Path) -> None:
        self._url = f"http://127.0.0.1:{port}/2015-03-31/functions/function/invocations"
        self._log = log

    def invoke(self, sent: dict[str, Any]) -> httpx.Response:
        return httpx.post(self._url, json=sent, timeout=SECONDS, trust_env=False)

    def output(self) -> str:
        return self._log.read_text(errors="replace")


@contextmanager
def emulator(directory: Path, command: list[str], env: dict[str, str]) -> Iterator[Emulator]:
    """`command` starts the emulator; `{}` in it is where its options go."""
    front, api = free_port(), free_port()
    options = ["--runtime-interface-emulator-address", f"127.0.0.1:{front}"]
    options += ["--runtime-api-address", f"127.0.0.1:{api}"]
    at = command.index("{}")
    log = directory / "log"
    shared = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command[:at], *options, *command[at + 1 :]],
            cwd=directory,
            env={**shared, "AWS_LAMBDA_FUNCTION_TIMEOUT": "4", **env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    running = Emulator(front, log)
    try:
        _await_port(front)
        yield running
    finally:
        process.terminate()
        process.wait(SECONDS)
        print(running.output())


def _await_port(port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)
        except httpx.ConnectError:
            assert time.monotonic() < deadline, "the emulator does not listen"
            time.sleep(0.05)
        else:
            return


def _skip_without_rie() -> None:
    if sys.platform != "linux":
        pytest.skip("AWS's runtime interface emulator runs on Linux only")
    if not RIE.exists():
        pytest.skip("AWS's runtime interface emulator is missing; `make setup` brings it")


@pytest.fixture(name="rie")
def rie_fixture(tmp_path: Path) -> Iterator[Emulator]:
    """One request at a time: a second one would end it."""
    _skip_without_rie()
    bootstrap = tmp_path / "bootstrap"
    bootstrap.write_text(BOOTSTRAP)
    bootstrap.chmod(0o755)
    env = {
        "AWS_LAMBDA_EXEC_WRAPPER": str(WRAPPER),
        "LAMBDA_TASK_ROOT": str(APPS),
        "TEST_PYTHON": sys.executable,
    }
    with emulator(tmp_path, [str(RIE), "{}", str(bootstrap), "plain.app"], env) as running:
        yield running


@pytest.fixture(name="instances")
def instances_fixture(tmp_path: Path) -> Iterator[Emulator]:
    """In the mode of Lambda Managed Instances: several requests at once, and trailers are read.

    It knows no paths but Lambda's, and runs the function as another user; so its /opt and /var are
    folders of the test, and its Python is the machine's.
    """
    _skip_without_rie()
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can give the emulator the folders of Lambda")
    python = next(iter(sorted(Path("/usr/bin").glob("python3.1[1-9]"))), None)
    if python is None:
        pytest.skip("there is no Python 3.11 or newer in /usr/bin")
    opt, var = tmp_path / "opt", tmp_path / "var"
    shutil.copytree(LAYER, opt)
    shutil.copytree(APPS, var / "task")
    shutil.copy(RIE, tmp_path / "rie")
    (opt / "bootstrap").write_text(BOOTSTRAP)
    (opt / "bootstrap").chmod(0o755)
    for folder in (opt, var):
        folder.chmod(0o755)
    mounts = f"mount --bind {opt} /opt && mount --bind {var} /var"
    script = f'cd {tmp_path} && {mounts} && exec ./rie "$@"'
    env = {
        "_HANDLER": "plain.app",
        "AWS_LAMBDA_EXEC_WRAPPER": "/opt/asgi-stream",
        "AWS_LAMBDA_FUNCTION_TIMEOUT": "120",
        "AWS_LAMBDA_MAX_CONCURRENCY": "4",
        "LAMBDA_TASK_ROOT": "/var/task",
        "TEST_PYTHON": str(python),
    }
    command = ["unshare", "--mount", "sh", "-c", script, "rie", "{}"]
    with emulator(tmp_path, command, env) as running:
        yield running


def test_responses_and_errors_are_understood(rie: Emulator) -> None:
    response = parsed(rie.invoke(event("/binary")).content)
    assert response.status == 200
    assert response.body == bytes(range(256)) * 4

    assert rie.invoke(event("/early")).json()["errorType"] == "LookupError"
    assert rie.invoke({}).json()["errorType"] == "Runtime.MalformedEvent"

    response = parsed(rie.invoke(event("/midway")).content)
    assert b"data: first\n\n" in response.body

    response = parsed(rie.invoke(event("/events")).content)
    assert response.body.count(b"data: ") == 4
    assert "refused" not in rie.output()
    assert "aborted the response" not in rie.output()


def test_a_stream_ends_before_the_emulator_ends_it(rie: Emulator) -> None:
    response = parsed(rie.invoke(event("/stubborn")).content)
    assert b"data: more\n\n" in response.body
    assert parsed(rie.invoke(event("/binary")).content).status == 200
    assert "timed out" not in rie.output().lower()


def test_a_response_of_five_megabytes_is_streamed(rie: Emulator) -> None:
    response = parsed(rie.invoke(event("/large", "5")).content)
    assert len(response.body) == 5 << 20


def test_trailers_are_understood(instances: Emulator) -> None:
    answer = instances.invoke(event("/binary"))
    assert answer.headers["lambda-runtime-function-response-mode"] == "streaming"
    assert parsed(answer.content).body == bytes(range(256)) * 4

    answer = instances.invoke(event("/midway"))
    assert answer.headers["error-type"] == "Function.LookupError"
    assert answer.json()["errorMessage"] == "in the middle: ü"


def test_several_requests_are_served_at_once(instances: Emulator) -> None:
    # It takes requests when the first of the four can be served, and refuses the others.
    assert parsed(instances.invoke(event("/pause")).content).status == 200
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(instances.invoke, [event("/together", "4")] * 4))
    assert [parsed(answer.content).status for answer in answers] == [200] * 4
