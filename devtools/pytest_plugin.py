"""Rules of every test run: marks by folder, unique names, no process left behind, a clear end."""

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
"""The folders of tests/, and the marks of what is in them."""

FIRST: Final = ("tests/e2e/", "tests/integration/glue/", "tests/integration/infra/")
"""Folders that take longest. Each goes to one process, at the beginning, since its tests share what
takes long to make: the local AWS, a JVM with Spark, the stacks."""

END_SECONDS: Final = 30.0
"""How long a process of a test may take to end after the test."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # Schemathesis makes many tests of one function, but leaves them one name.
        _, bracket, operation = item.name.partition("[")
        if bracket and item._id.params is None:
            item._id = dataclasses.replace(item._id, params=operation.removesuffix("]"))
        top = item.path.relative_to(ROOT / "tests").parts[0]
        if top in MARKS:
            item.add_marker(top)
    items.sort(key=lambda item: _place(item.nodeid))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuses two tests with one name: only one of them would be run side by side with others."""
    names = Counter(item.nodeid for item in session.items)
    if len(names) < len(session.items):
        raise pytest.UsageError(f"more than one test is called {names.most_common(1)[0][0]}")


def _place(nodeid: str) -> int:
    places = (place for place, each in enumerate(FIRST) if nodeid.startswith(each))
    return next(places, len(FIRST))


class FilesAndFolders(LoadFileScheduling):  # type: ignore[misc]
    """Gives a process one file of tests at a time, but a whole folder of `FIRST`."""

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
    """The processes that this one has started, as Linux knows them; none on other systems.

    Those of fixtures that several tests share are not a test's own, nor are the execution
    environments of a local AWS, which ends them with itself.
    """

    def __init__(self) -> None:
        self.shared: set[int] = set()
        self.before: set[int] = set()

    def running(self) -> set[int]:
        found: set[int] = set()
        for task in Path("/proc/self/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found.update(map(int, task.read_text().split()))
        return {pid for pid in found if self.command(pid)}

    def command(self, pid: int) -> str:
        """Its command line; empty when it has ended, even if nobody has asked for its code."""
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(bytes(1), b" ").decode()
        except OSError:
            return ""

    def left(self) -> set[int]:
        """What the test has started and not ended, after some patience."""
        deadline = time.monotonic() + END_SECONDS
        while True:
            found = {
                pid
                for pid in self.running() - self.shared - self.before
                if ".engines/lambda/" not in self.command(pid)
            }
            if not found or time.monotonic() > deadline:
                return found
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
    """Fails a test that leaves a process behind, and ends that process."""
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
    """Says how to run a failed test again, and how long `make test` has taken with its set-up."""
    failed = [
        report.nodeid
        for kind in ("failed", "error")
        for report in terminalreporter.stats.get(kind, [])
    ]
    if failed:
        python = os.path.relpath(sys.executable)
        terminalreporter.section("run one again")
        terminalreporter.line(f"{python} -m pytest -n0 '{failed[0]}'")
    if began := os.environ.get("BEGAN"):
        minutes, seconds = divmod(int(time.time()) - int(began), 60)
        terminalreporter.line(f"All phases together: {minutes} min {seconds} s")
