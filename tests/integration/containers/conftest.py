"""A server as a container runs it, read-only, and another one that writes to its table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devtools.engines.ministack import Engine
from devtools.server import Server
from tests.conftest import on_dynamodb

ORIGIN_SECRET = "between CloudFront and the containers"
KEY = "k" * 32


@pytest.fixture(scope="module")
def writer(aws: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("writer") / "unused", on_dynamodb(aws)) as server:
        yield server


@pytest.fixture(scope="module")
def container(writer: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {
        **writer.env,
        "TAILRACE_ORIGIN_SECRET": ORIGIN_SECRET,
        "TAILRACE_ACCESS": "closed",
        "TAILRACE_ACCESS_SECRET": f'{{"secret": "{KEY}"}}',
        "TAILRACE_READ_ONLY": "true",
        "TAILRACE_LONG_POLL_TIMEOUT": "2",
        "TAILRACE_CURSOR_INTERVAL": "2",
        "TAILRACE_METRICS_INTERVAL": "0.5",
        "TAILRACE_SWEEP_INTERVAL": "0",
        "POWERTOOLS_SERVICE_NAME": "tailrace-test",
    }
    with Server(tmp_path_factory.mktemp("container") / "unused", settings) as server:
        yield server


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server behind CloudFront whose store answers many requests without a task."""
    settings = {"TAILRACE_ORIGIN_SECRET": ORIGIN_SECRET, "TAILRACE_ACCESS": "open"}
    with Server(tmp_path_factory.mktemp("embedded") / "data", settings) as server:
        yield server
