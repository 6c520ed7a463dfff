"""A server with all options of Action Cable enabled, and its clients."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import httpx
import pytest

from devtools.server import Server
from tests.conftest import StoreSettings
from tests.support.cable import SETTINGS, BroadcastClient, Log

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def cable_server(
    store_settings: StoreSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A closed server; streams below `open/` are public."""
    settings = {**store_settings(), **SETTINGS}
    with Server(tmp_path_factory.mktemp("cable") / "data", settings) as server:
        yield server


@pytest.fixture
def http(cable_server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=cable_server.url, trust_env=False, timeout=20) as client:
        yield client


@pytest.fixture
def log(cable_server: Server) -> Log:
    return Log(cable_server)


@pytest.fixture
def broadcast(http: httpx.Client) -> BroadcastClient:
    return BroadcastClient(http)


@pytest.fixture
def stream() -> str:
    """The name of a public stream that no other test uses."""
    return f"open/{next(_NUMBERS)}"
