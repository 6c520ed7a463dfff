"""What tests share: the server as a real process, and the JavaScript tests run by vitest."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import pytest
from xdist.scheduler import LoadFileScheduling

from tests.engines import Engine, aws_fixture, fresh_name, ministack_fixture  # noqa: F401
from tests.seaweedfs import seaweedfs_fixture  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent
ENGINES = ROOT / ".engines"
READY = re.compile(r"ready on (http://127\.0\.0\.1:(\d+))")
START_SECONDS = 20.0
STOP_SECONDS = 20.0
SHOWN_BYTES = 8_000


class Server:
    """One server process on loopback; its data directory outlives it.

    `env` holds settings, such as `{"TAILRACE_LONG_POLL_TIMEOUT": "2"}`.
    """

    def __init__(self, data: Path, env: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.env = dict(env or {})
        self.log = data.with_name(f"{data.name}.log")
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._running.pid

    def start(self) -> Self:
        """Starts the server, on the same port as before, and returns when it answers."""
        assert self._process is None, "the server is running already"
        logged = self.log.stat().st_size if self.log.exists() else 0
        command = [sys.executable, "-m", "tailrace", "serve"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port), "--data", str(self.data)],
                env={**os.environ, **self.env},
                cwd=self.data.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers(logged):
            ended = self._process.poll()
            if ended is not None or time.monotonic() > deadline:
                self.kill()
                state = "is not ready" if ended is None else f"ended with {ended}"
                raise AssertionError(f"the server {state}; its output:\n{self.output()}")
            time.sleep(0.01)
        return self

    def stop(self) -> int:
        """Ends the server as an operator would; returns its exit code."""
        process = self._running
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"SIGTERM did not end the server:\n{self.output()}") from None
        self._process = None
        return code

    def kill(self) -> None:
        """Ends the server as a crash would; harmless when it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def output(self) -> str:
        return self.log.read_bytes()[-SHOWN_BYTES:].decode(errors="replace")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.kill()
        if error is not None:
            print(self.output())

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server is not running"
        return self._process

    def _answers(self, logged: int) -> bool:
        ready = READY.search(self.log.read_bytes()[logged:].decode(errors="replace"))
        if ready is None:
            return False
        self.port = int(ready[2])
        try:
            return httpx.get(f"{self.url}/health", trust_env=False).is_success
        except httpx.TransportError:
            return False


ON_DYNAMODB = os.environ.get("TAILRACE_TEST_STORE") == "dynamodb"
"""Whether `make test-dynamodb` runs the tests of the HTTP server over the other store."""

embedded_only = pytest.mark.skipif(ON_DYNAMODB, reason="about the files of the embedded store")

StoreSettings = Callable[[], dict[str, str]]


@pytest.fixture(scope="session")
def store_settings(request: pytest.FixtureRequest) -> StoreSettings:
    """Makes the settings of a store that is one server's alone."""
    if not ON_DYNAMODB:
        return dict
    aws: Engine = request.getfixturevalue("aws")
    return lambda: on_dynamodb(aws)


def on_dynamodb(aws: Engine) -> dict[str, str]:
    """Settings for a table that nobody else has."""
    return {**aws.env, "TAILRACE_STORE": "dynamodb", "TAILRACE_TABLE": fresh_name("server")}


@pytest.fixture(scope="session")
def server(
    store_settings: StoreSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The server that most tests share; they keep apart by the paths of their streams."""
    data = tmp_path_factory.mktemp("shared") / "data"
    with Server(data, {**store_settings(), "TAILRACE_LONG_POLL_TIMEOUT": "2"}) as shared:
        yield shared


@pytest.fixture
def own_server(store_settings: StoreSettings, tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, to stop, kill and restart."""
    settings = {**store_settings(), "TAILRACE_LONG_POLL_TIMEOUT": "2"}
    with Server(tmp_path / "data", settings) as own:
        yield own


@pytest.fixture(scope="session")
def dynamodb_server(aws: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server over DynamoDB that tests share."""
    data = tmp_path_factory.mktemp("dynamodb") / "unused"
    with Server(data, {**on_dynamodb(aws), "TAILRACE_LONG_POLL_TIMEOUT": "2"}) as shared:
        yield shared


def pytest_collection_finish(session: pytest.Session) -> None:
    """Of tests with one name, only one would be run side by side with others."""
    names = Counter(item.nodeid for item in session.items)
    if len(names) < len(session.items):
        raise pytest.UsageError(f"more than one test is called {names.most_common(1)[0][0]}")


TOGETHER = ("tests/glue/", "tests/e2e/", "tests/infra/")
"""Tests that share what takes long to make: a JVM with Spark, the whole path, the stacks."""

FIRST = (
    "tests/glue/", "tests/e2e/", "tests/conformance/", "tests/infra/",
    "tests/test_limits.py", "tests/test_settings.py", "tests/test_readme.py",
    "tests/test_server.py", "tests/deploy/", "tests/package/", "tests/aws/", "tests/faults/",
    "tests/cable/",
)  # fmt: skip
"""What takes longest, so that no process is left with it at the end. Each process gets two pieces
of work at the beginning, so four that are small follow the four that are large."""


class Shares(LoadFileScheduling):  # type: ignore[misc]
    """A file of tests to a process at a time, but those that belong together to one."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return next((each for each in TOGETHER if scope.startswith(each)), scope)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return Shares(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        places = (i for i, each in enumerate(FIRST) if item.nodeid.startswith(each))
        return next(places, len(FIRST))

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for name, value in item.funcargs.items():
            if isinstance(value, Server):
                report.sections.append((f"output of {name}", value.output()))
    return report


@dataclass(frozen=True, slots=True)
class VitestTest:
    name: str
    status: str
    messages: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.name, *(f"    {m}".replace("\n", "\n    ") for m in self.messages)])


def find_node() -> str:
    """The Node of set-up, or else the machine's own."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    node = shutil.which("node", path=path)
    assert node is not None, "Node is missing; `make setup` brings it"
    return node


def run_vitest(
    root: Path, report: Path, env: Mapping[str, str], *, seconds: float
) -> list[VitestTest]:
    """Runs the test files below `root`, each test's outcome in their order."""
    vitest = ROOT / "node_modules" / "vitest" / "vitest.mjs"
    assert vitest.exists(), "node_modules is missing; `make setup` brings it"
    done = subprocess.run(
        [find_node(), vitest, "run", "--root", root, "--reporter=json", f"--outputFile={report}"],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert report.exists(), f"vitest wrote no report:\n{done.stdout}\n{done.stderr}"
    results: dict[str, Any] = json.loads(report.read_bytes())
    tests = [
        VitestTest(test["fullName"], test["status"], tuple(test["failureMessages"]))
        for file in results["testResults"]
        for test in file["assertionResults"]
    ]
    failed = any(test.status == "failed" for test in tests)
    # A file that cannot be loaded fails the run without any test of its own failing.
    assert failed or done.returncode == 0, f"vitest failed:\n{done.stdout}\n{done.stderr}"
    return tests


def fail_with(tests: Iterable[VitestTest]) -> None:
    """Fails the calling test when there are any, naming each and what it said."""
    shown = [str(test) for test in tests]
    if shown:
        pytest.fail(
            f"{len(shown)} JavaScript tests failed:\n\n" + "\n\n".join(shown), pytrace=False
        )
