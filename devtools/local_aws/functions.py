"""Lambda functions, each with a pool of execution environments."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from devtools.local_aws.environments import PYTHON, Answer, Configuration, Environment
from devtools.local_aws.runtime_api import Failure

SHOWN_BYTES: Final = 8_000


class Throttled(Exception):
    """All environments of the function are busy, and it cannot have more."""


class Function:
    """A function and its pool of environments."""

    def __init__(self, configuration: Configuration, folder: Path) -> None:
        self.configuration = configuration
        self.folder = folder / configuration.name
        self.cold_starts = 0
        self.invocations = 0
        self._idle: list[Environment] = []
        self._all: set[Environment] = set()
        self._taken = 0
        self._finishing = 0
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Self:
        assert PYTHON.exists(), "Lambda's Python is missing; `make setup` brings it"
        await asyncio.to_thread(_unpack, self.configuration, self.folder)
        return self

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(environment.close() for environment in self._all))

    async def invoke(self, event: Mapping[str, Any], *, trace: str = "") -> Answer:
        """Invoke the function in a free environment; raises `Throttled` if there is none."""
        environment = await self._take()
        self.invocations += 1
        answer = Answer()
        task = asyncio.create_task(self._run(environment, event, trace, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return answer

    async def renew(self) -> None:
        """Stop all idle environments, so that the next request starts a new one."""
        async with self._changed:
            # An environment that has just responded is about to be idle, too.
            await self._changed.wait_for(lambda: not self._finishing)
            idle, self._idle = self._idle, []
        for environment in idle:
            await self._drop(environment)

    def limit(self, concurrency: int) -> None:
        """Change how many environments it may have at a time."""
        self.configuration = replace(self.configuration, concurrency=concurrency)

    def kill(self) -> None:
        """End all environments, whatever they do."""
        for environment in tuple(self._all):
            environment.kill()

    def logs(self) -> list[Path]:
        """The log files of the environments, the oldest first."""
        return sorted(self.folder.glob("log/*"))

    def output(self) -> str:
        """The last output of its environments."""
        shown = [log.read_bytes()[-SHOWN_BYTES:].decode(errors="replace") for log in self.logs()]
        return "".join(shown)[-SHOWN_BYTES:]

    async def _take(self) -> Environment | None:
        """An idle environment; None if a new one may be started."""
        async with self._changed:
            # An environment that has just responded is about to be idle; a cold start takes longer.
            await self._changed.wait_for(lambda: self._idle or not self._finishing)
            if self._taken - self._finishing >= self.configuration.concurrency:
                raise Throttled
            self._taken += 1
            return self._idle.pop() if self._idle else None

    async def _give(self, environment: Environment | None, *, responded: bool) -> None:
        async with self._changed:
            self._taken -= 1
            self._finishing -= responded
            if environment is not None:
                self._idle.append(environment)
            self._changed.notify_all()

    async def _run(
        self,
        environment: Environment | None,
        event: Mapping[str, Any],
        trace: str,
        answer: Answer,
    ) -> None:
        responded = False
        try:
            if environment is None or not environment.alive:
                await self._drop(environment)
                environment = await self._cold_start()
            failure = environment.init_failure or await environment.run(event, trace, answer)
            self._finishing += 1
            responded = True
            answer.end(failure)
            if not await environment.confirm():
                await self._drop(environment)
                environment = None
        except BaseException as error:
            answer.end(Failure("Sandbox.Failed", {"errorMessage": repr(error)}))
            raise
        finally:
            await self._give(environment, responded=responded)

    async def _cold_start(self) -> Environment:
        self.cold_starts += 1
        log = self.folder / "log" / f"{self.cold_starts:04d}"
        environment = Environment(self.configuration, self.folder, log)
        self._all.add(environment)
        await environment.start()
        return environment

    async def _drop(self, environment: Environment | None) -> None:
        if environment is not None:
            self._all.discard(environment)
            await environment.close()


def _unpack(configuration: Configuration, folder: Path) -> None:
    """Create the folders `task`, `opt` with the merged layers, and `runtime`.

    They contain links to files, so that compiled bytecode is not written to the packages."""
    _link(configuration.code, folder / "task")
    (folder / "opt").mkdir()
    for layer in configuration.layers:
        _link(layer, folder / "opt")
    (folder / "runtime").mkdir()
    shutil.copy(Path(__file__).parent / "bootstrap.py", folder / "runtime")
    (folder / "log").mkdir()


def _link(source: Path, target: Path) -> None:
    def link(file: str, at: str) -> None:
        Path(at).unlink(missing_ok=True)
        Path(at).symlink_to(file)

    shutil.copytree(source.resolve(), target, copy_function=link, dirs_exist_ok=True)
