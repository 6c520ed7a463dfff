"""Fixtures of all tests: servers and engines, each one per process."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path

import pytest

from devtools.engines.ministack import Engine, Ministack
from devtools.engines.seaweedfs import MISSING, Seaweedfs
from devtools.node import VitestTest
from devtools.processes import Process, fresh_name
from devtools.server import Server

pytest_plugins = ["devtools.pytest_plugin"]
# Not a test module, but its assertions are to explain themselves, too.
pytest.register_assert_rewrite("tests.support.store_contract")

ON_DYNAMODB = os.environ.get("TEST_STORE") == "dynamodb"
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


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ministack]:
    with Ministack(tmp_path_factory.mktemp("ministack")) as shared:
        yield shared


@pytest.fixture(scope="session")
def aws(ministack: Ministack) -> Engine:
    """DynamoDB and S3 that the tests share; they keep apart by `fresh_name`.

    `make test-dynamodb-local` names another endpoint for DynamoDB.
    """
    url = os.environ.get("TEST_DYNAMODB")
    if url:
        return Engine("DynamoDB Local", url, ministack.url)
    return Engine("ministack", ministack.url, ministack.url)


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweedfs]:
    """S3 that checks signatures; tests keep apart by `fresh_name`."""
    if MISSING.exists():
        pytest.skip(f"without SeaweedFS: {MISSING.read_text().strip()}")
    with Seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as shared:
        yield shared


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds what the processes of a failed test have printed."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for name, value in item.funcargs.items():
            if isinstance(value, Process):
                report.sections.append((f"output of {name}", value.output()))
    return report


def fail_with(tests: Iterable[VitestTest]) -> None:
    """Fails the calling test when there are any, naming each and what it said."""
    shown = [str(test) for test in tests]
    if shown:
        pytest.fail(
            f"{len(shown)} JavaScript tests failed:\n\n" + "\n\n".join(shown), pytrace=False
        )
