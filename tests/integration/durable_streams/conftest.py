"""Clients of the shared server, and a second server whose every limit is small."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest

from devtools.server import Server
from tailrace.app import Application
from tailrace.clock import Clock, system_clock
from tailrace.settings import Settings
from tests.conftest import StoreSettings
from tests.support.wire import Connection

Connect = Callable[..., Connection]

_NUMBERS = itertools.count()

SECONDS = 120.0
"""How long an answer may take before a test fails."""

CRAMPED = {
    "TAILRACE_CHUNK_BYTES": "1024",
    "TAILRACE_HOT_BYTES": "8192",
    "TAILRACE_LONG_POLL_TIMEOUT": "0.4",
    "TAILRACE_MAX_BODY_BYTES": "100000",
    "TAILRACE_OPEN_STREAMS": "16",
    "TAILRACE_PUBLIC_URL": "https://streams.example:8443/",
    "TAILRACE_SSE_LIFETIME": "1",
    "TAILRACE_SWEEP_INTERVAL": "0.05",
}


@pytest.fixture
def path() -> str:
    """A path that no other test uses."""
    return f"wire/{next(_NUMBERS)}"


@pytest.fixture(scope="session")
def server(
    store_settings: StoreSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The server that these tests share; its long-polls do not time out."""
    settings = {**store_settings(), "TAILRACE_LONG_POLL_TIMEOUT": "600"}
    with Server(tmp_path_factory.mktemp("http") / "data", settings) as shared:
        yield shared


@pytest.fixture(scope="session")
def sharing(
    store_settings: StoreSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server whose SSE responses caches can share: they wait for a second."""
    settings = {
        **store_settings(),
        "TAILRACE_SSE_SHARED": "true",
        "TAILRACE_LONG_POLL_TIMEOUT": "1",
        "TAILRACE_CURSOR_INTERVAL": "1",
    }
    with Server(tmp_path_factory.mktemp("sharing") / "data", settings) as shared:
        yield shared


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[httpx.Client]:
    yield from _client(server)


@pytest.fixture(scope="session")
def cramped(
    store_settings: StoreSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    settings = {**store_settings(), **CRAMPED}
    with Server(tmp_path_factory.mktemp("cramped") / "data", settings) as small:
        yield small


@pytest.fixture(scope="session")
def cramped_client(cramped: Server) -> Iterator[httpx.Client]:
    yield from _client(cramped)


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    """Opens connections, to the shared server by default, and closes them after the test."""
    opened: list[Connection] = []

    def connect(
        to: Server = server, seconds: float = SECONDS, receive_bytes: int = 0
    ) -> Connection:
        opened.append(Connection(to.port, seconds, receive_bytes=receive_bytes))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def wire(connect: Connect) -> Connection:
    return connect()


@contextlib.asynccontextmanager
async def local(
    settings: Settings, clock: Clock = system_clock
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application in this process, which has the clock of the test."""
    application = Application(settings, clock=clock)
    await application.start()
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(application), base_url="http://local"
        ) as client:
            yield client
    finally:
        await application.stop()


def _client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=f"{server.url}/v1/stream/",
        headers={"accept-encoding": "identity"},
        timeout=SECONDS,
        trust_env=False,
    ) as client:
        yield client
