"""The servers on which the client is tried: Tailrace, the reference server, the Rust server."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from devtools.other_servers import reference_server, rust_program, rust_server
from devtools.server import Server
from tailrace.client import Client, Stream

SERVERS = ("tailrace", "reference", "rust")


@pytest.fixture(scope="session")
def reference_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with reference_server(tmp_path_factory.mktemp("reference") / "data") as server:
        yield server.url


@pytest.fixture(scope="session")
def rust_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if rust_program() is None:
        pytest.skip("without the Rust server: `make rust-server` installs it")
    with rust_server(tmp_path_factory.mktemp("rust") / "data") as server:
        yield server.url


@pytest.fixture(scope="session", params=SERVERS)
def url(request: pytest.FixtureRequest) -> str:
    """The URL of each server in turn."""
    if request.param == "tailrace":
        server: Server = request.getfixturevalue("server")
        return server.url
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"client/{uuid4().hex}"


@pytest.fixture
def numbers(client: Client, name: str) -> Stream:
    """A stream of JSON."""
    stream = client.stream(name)
    stream.create(content_type="application/json")
    return stream


@pytest.fixture
def text(client: Client, name: str) -> Stream:
    stream = client.stream(f"{name}-text")
    stream.create(content_type="text/plain")
    return stream
