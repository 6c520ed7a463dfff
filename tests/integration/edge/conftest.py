"""An edge and two origins behind it, which the tests of a module share."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from devtools.local_aws.edge import VARNISH, Edge, Origin
from tests.integration.edge.origin import FakeOrigin
from tests.integration.edge.template import distribution

SECRET = "the origin's secret"

needs_varnish = pytest.mark.skipif(
    not VARNISH.exists() or shutil.which("cc") is None,
    reason="Varnish, or the C compiler that it needs, is missing; `make setup` says why",
)

MakeEdge = Callable[[Mapping[str, Any]], AbstractContextManager[Edge]]


@dataclass(frozen=True, slots=True)
class Origins:
    http: FakeOrigin
    live: FakeOrigin


@pytest.fixture(scope="module")
def origins() -> Iterator[Origins]:
    with FakeOrigin() as http, FakeOrigin() as live:
        yield Origins(http, live)


@pytest.fixture(scope="module")
def make_edge(origins: Origins, tmp_path_factory: pytest.TempPathFactory) -> MakeEdge:
    """Makes an edge in front of the origins, by a template."""

    def make(template: Mapping[str, Any]) -> Edge:
        headers = {"x-tailrace-origin": SECRET}
        places = {
            "http": Origin(origins.http.port, headers),
            "wait": Origin(origins.http.port, headers),
            "live": Origin(origins.live.port, headers),
        }
        return Edge(tmp_path_factory.mktemp("edge"), template, places)

    return make


@pytest.fixture(scope="module")
def edge(make_edge: MakeEdge) -> Iterator[Edge]:
    with make_edge(distribution()) as shared:
        yield shared


@pytest.fixture
async def viewer(edge: Edge) -> AsyncIterator[httpx.AsyncClient]:
    async with client(edge) as viewer:
        yield viewer


@pytest.fixture
def path() -> str:
    """A stream that no other test has."""
    return f"/v1/stream/{secrets.token_hex(6)}"


def client(edge: Edge) -> httpx.AsyncClient:
    """As many viewers as one likes; none takes an encoding unless it says so."""
    return httpx.AsyncClient(
        base_url=edge.url,
        headers={"accept-encoding": "identity"},
        limits=httpx.Limits(max_connections=None),
        timeout=120,
        trust_env=False,
    )
