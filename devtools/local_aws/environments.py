"""Lambda's execution environments.

An environment is a process with the environment variables of Lambda and none of this machine. It
takes one invocation at a time, and an idle one is reused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from devtools.local_aws.runtime_api import Failure, Invocation, RuntimeApi

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PYTHON: Final = ROOT / ".engines" / "lambda" / "bin" / "python"
REGION: Final = "us-east-1"
MOST_ENVIRONMENTS: Final = 100
"""Lambda allows 1,000 by default, which is too many for a test machine."""
INIT_SECONDS: Final = 300.0
"""Lambda allows 10; on a busy machine an init takes longer than it would on Lambda."""
GRACE_SECONDS: Final = 300.0
"""How long a function may exceed its timeout, for the same reason."""
DISCONNECT_SECONDS: Final = 60.0
"""How long the connections of an ended process may stay open."""
LOOK_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The configuration of a deployed function."""

    name: str
    code: Path
    handler: str = "handler.handler"
    layers: tuple[Path, ...] = ()
    runtime: str = "python3.14"
    seconds: float = 3
    grace: float = 0
    """How long its process may exceed the timeout that the function is told, in seconds."""
    memory: int = 128
    environment: Mapping[str, str] = field(default_factory=dict)
    concurrency: int = MOST_ENVIRONMENTS


class Answer:
    """The streamed response of an invocation, which continues even if nothing reads it."""

    def __init__(self) -> None:
        self.mode = "buffered"
        self.content_type = ""
        self.failure: Failure | None = None
        """Set when the body has ended."""
        self._begun = asyncio.Event()
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def begun(self) -> None:
        """Wait until the function responds or fails."""
        await self._begun.wait()

    async def body(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece

    def begin(self, invocation: Invocation) -> None:
        self.mode, self.content_type = invocation.mode, invocation.content_type
        self._begun.set()

    def add(self, piece: bytes) -> None:
        self._pieces.put_nowait(piece)

    def end(self, failure: Failure | None) -> None:
        self.failure = failure
        self._begun.set()
        self._pieces.put_nowait(None)


class Environment:
    """One execution environment: a process and its Runtime API."""

    def __init__(self, configuration: Configuration, folder: Path, log: Path) -> None:
        self.configuration = configuration
        self.folder = folder
        self.init_failure: Failure | None = None
        self._log: BinaryIO = log.open("ab", buffering=0)
        self._api = RuntimeApi()
        self._process: asyncio.subprocess.Process | None = None
        self._ended: asyncio.Task[int] | None = None

    @property
    def alive(self) -> bool:
        return self._ended is not None and not self._ended.done()

    async def start(self) -> None:
        """Run the init phase, which ends when the runtime requests its first event."""
        began = time.monotonic()
        await self._api.start()
        opt = str(self.folder / "opt")
        variables = _variables(self.configuration, self.folder, self._api.address)
        wrapper = variables.get("AWS_LAMBDA_EXEC_WRAPPER")
        if wrapper is not None:
            wrapper = variables["AWS_LAMBDA_EXEC_WRAPPER"] = wrapper.replace("/opt", opt, 1)
        bootstrap = self.folder / "runtime" / "bootstrap.py"
        try:
            self._process = await asyncio.create_subprocess_exec(
                *([wrapper] if wrapper else []),
                PYTHON,
                bootstrap,
                env=variables,
                cwd=self.folder / "task",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        except OSError as error:
            self.init_failure = _failure("Runtime.ExitError", str(error))
            self._note(f"INIT_REPORT Status: error {error}")
            return
        self._ended = asyncio.create_task(self._process.wait())
        if not await self._waiting(INIT_SECONDS):
            self.init_failure = self._api.init_error or self._exit_failure("")
        status = "error" if self.init_failure else "success"
        self._note(f"INIT_REPORT Init Duration: {_ms(began)} ms Status: {status}")

    async def run(self, event: Mapping[str, Any], trace: str, answer: Answer) -> Failure | None:
        """Run one invocation, and kill the process if it exceeds its timeout."""
        assert self._ended is not None
        seconds, grace = self.configuration.seconds, self.configuration.grace
        began = time.monotonic()
        invocation = self._api.invoke(
            event, seconds=seconds, grace=grace, trace=trace, arn=self._arn
        )
        self._note(f"START RequestId: {invocation.request_id} Version: $LATEST")
        relay = asyncio.create_task(_relay(invocation, answer))
        try:
            await asyncio.wait(
                [relay, self._ended], timeout=seconds + grace, return_when=asyncio.FIRST_COMPLETED
            )
            if self._ended.done():
                # Data that the process sent before it ended may still be in transit.
                await self._api.disconnected(DISCONNECT_SECONDS)
                if invocation.state == "finished":
                    await asyncio.wait([relay])
            if relay.done() and relay.exception() is None:
                return invocation.failure
            if not self.alive:
                return self._exit_failure(invocation.request_id)
            self.kill()
            return _failure(
                "Sandbox.Timedout",
                f"RequestId: {invocation.request_id} Error: Task timed out after"
                f" {seconds:.2f} seconds",
            )
        finally:
            relay.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await relay
            self._note(f"REPORT RequestId: {invocation.request_id} Duration: {_ms(began)} ms")

    async def confirm(self) -> bool:
        """Wait until it can take the next event; False if it has ended."""
        return await self._waiting(self.configuration.seconds + self.configuration.grace)

    async def close(self) -> None:
        self.kill()
        if self._ended is not None:
            await self._ended
        await self._api.close()
        self._log.close()

    @property
    def _arn(self) -> str:
        return f"arn:aws:lambda:{REGION}:000000000000:function:{self.configuration.name}"

    async def _waiting(self, seconds: float) -> bool:
        """Wait until the runtime requests the next event; False if it ends or takes too long."""
        deadline = time.monotonic() + seconds
        while not self._api.waiting:
            if not self.alive or time.monotonic() > deadline:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return self.alive

    def kill(self) -> None:
        """End its process now, whatever it does."""
        if self.alive and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _exit_failure(self, request_id: str) -> Failure:
        how = "did not become ready"
        if self._ended is not None and self._ended.done():
            code = self._ended.result()
            how = f"exited with error: exit status {code}" if code else "exited without a reason"
        return _failure("Runtime.ExitError", f"RequestId: {request_id} Error: Runtime {how}")

    def _note(self, line: str) -> None:
        self._log.write(line.encode() + b"\n")


async def _relay(invocation: Invocation, answer: Answer) -> None:
    await invocation.begun()
    answer.begin(invocation)
    async for piece in invocation.body():
        answer.add(piece)


def _failure(kind: str, message: str) -> Failure:
    return Failure(kind, {"errorType": kind, "errorMessage": message})


def _ms(began: float) -> str:
    return f"{(time.monotonic() - began) * 1000:.0f}"


def _variables(configuration: Configuration, folder: Path, api: str) -> dict[str, str]:
    """Environment variables: those of the function, and those that Lambda sets."""
    name = configuration.name
    return {
        **configuration.environment,
        "_HANDLER": configuration.handler,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EXECUTION_ENV": f"AWS_Lambda_{configuration.runtime}",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(configuration.memory),
        "AWS_LAMBDA_FUNCTION_NAME": name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": "local",
        "AWS_LAMBDA_RUNTIME_API": api,
        "AWS_REGION": REGION,
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_SESSION_TOKEN": "test",
        "LAMBDA_RUNTIME_DIR": str(folder / "runtime"),
        "LAMBDA_TASK_ROOT": str(folder / "task"),
        "LANG": "en_US.UTF-8",
        "PATH": f"/usr/local/bin:/usr/bin:/bin:{folder / 'opt' / 'bin'}",
        "PYTHONPATH": str(folder / "runtime"),
        "TZ": ":UTC",
    }
