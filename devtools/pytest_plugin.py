"""Rules for all test runs: marks by folder, unique names, no leftover processes, a summary."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling

from devtools.processes import ROOT

MARKS: Final = ("unit", "integration", "e2e", "slow")
"""The folders of tests/, and the marks of their tests."""

FIRST: Final = ("tests/e2e/", "tests/integration/glue/", "tests/integration/infra/")
"""The slowest folders. Each runs first, in one process, because its tests share fixtures that
take long: the local AWS, a JVM with Spark, the stacks."""

END_SECONDS: Final = 30.0
"""How long a child process may take to end after its test."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # Schemathesis creates many tests from one function, but gives all of them the same name.
        _, bracket, operation = item.name.partition("[")
        if bracket and item._id.params is None:
            item._id = dataclasses.replace(item._id, params=operation.removesuffix("]"))
        top = item.path.relative_to(ROOT / "tests").parts[0]
        if top in MARKS:
            item.add_marker(top)
    items.sort(key=lambda item: _priority(item.nodeid))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse two tests with the same name: pytest-xdist would run only one of them."""
    names = Counter(item.nodeid for item in session.items)
    if len(names) < len(session.items):
        raise pytest.UsageError(f"two tests have the same name: {names.most_common(1)[0][0]}")


def _priority(nodeid: str) -> int:
    priorities = (i for i, each in enumerate(FIRST) if nodeid.startswith(each))
    return next(priorities, len(FIRST))


class FilesAndFolders(LoadFileScheduling):  # type: ignore[misc]
    """Schedules one file at a time to a worker process, but the folders of `FIRST` as a whole."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return next((each for each in FIRST if scope.startswith(each)), scope)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return FilesAndFolders(config, log)


class Children:
    """The child processes of this process, from /proc; none on systems other than Linux.

    Processes of shared fixtures do not belong to a test, nor do the execution environments of a
    local AWS, which stops them when it stops.
    """

    def __init__(self) -> None:
        self.shared: set[int] = set()
        self.before: set[int] = set()

    def running(self) -> set[int]:
        pids: set[int] = set()
        for task in Path("/proc/self/task").glob("*/children"):
            with contextlib.suppress(OSError):
                pids.update(map(int, task.read_text().split()))
        return {pid for pid in pids if self.command(pid)}

    def command(self, pid: int) -> str:
        """The command line of a process; empty if it has ended, even as a zombie."""
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(bytes(1), b" ").decode()
        except OSError:
            return ""

    def left(self) -> set[int]:
        """The processes that a test has started and not ended, after a grace period."""
        deadline = time.monotonic() + END_SECONDS
        while True:
            pids = {
                pid
                for pid in self.running() - self.shared - self.before
                if ".engines/lambda/" not in self.command(pid)
            }
            if not pids or time.monotonic() > deadline:
                return pids
            time.sleep(0.01)


CHILDREN: Final = Children()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    if fixturedef.scope == "function":
        return (yield)
    before = CHILDREN.running()
    try:
        return (yield)
    finally:
        CHILDREN.shared |= CHILDREN.running() - before


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    CHILDREN.before = CHILDREN.running()
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Fail a test that leaves a process behind, and end that process."""
    yield
    left = CHILDREN.left()
    if left:
        names = [f"{pid}: {CHILDREN.command(pid)}" for pid in sorted(left)]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        pytest.fail("the test left processes behind:\n" + "\n".join(names), pytrace=False)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how to run a failed test again, and how long `make test` took including its set-up."""
    failed = [
        report.nodeid
        for kind in ("failed", "error")
        for report in terminalreporter.stats.get(kind, [])
    ]
    if failed:
        python = os.path.relpath(sys.executable)
        terminalreporter.section("run one of them again")
        terminalreporter.line(f"{python} -m pytest -n0 '{failed[0]}'")
    if began := os.environ.get("BEGAN"):
        minutes, seconds = divmod(int(time.time()) - int(began), 60)
        terminalreporter.line(f"Total time: {minutes} min {seconds} s")
