"""The path with containers in place of the functions that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from devtools.load.client import Address
from devtools.load.resuming import ResumingAudience
from devtools.local_aws.stack import AwsLocal
from devtools.processes import fresh_name
from tests.e2e.conftest import SECONDS

TEXT = {"content-type": "text/plain"}


@pytest.fixture
def viewer(containers_local: AwsLocal) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=containers_local.url, timeout=SECONDS, trust_env=False) as client:
        yield client


@pytest.fixture
def path() -> str:
    return f"/v1/stream/{fresh_name('contained')}"


def served_by(stack: AwsLocal, path: str) -> dict[str, set[str]]:
    """The methods with which each origin was asked for a path."""
    return {
        name: {method for method, target in stack.requests(name) if target.startswith(path)}
        for name in ("containers", "http")
    }


def test_containers_serve_what_waits_and_functions_the_rest(
    containers_local: AwsLocal, viewer: httpx.Client, path: str
) -> None:
    assert viewer.put(path, headers=TEXT).status_code == 201
    assert viewer.post(path, headers=TEXT, content="hello").status_code == 204
    assert viewer.head(path).status_code == 200
    assert served_by(containers_local, path) == {
        "containers": set(),
        "http": {"PUT", "POST", "HEAD"},
    }
    assert viewer.get(path, params={"offset": "-1", "live": "long-poll"}).text == "hello"
    with viewer.stream("GET", path, params={"offset": "-1", "live": "sse"}) as response:
        assert "data:hello" in response.iter_lines()
    assert served_by(containers_local, path)["containers"] == {"GET"}
    many = viewer.get("/v1/read", params={"stream": path.removeprefix("/v1/stream/")})
    assert many.status_code == 200, many.text
    assert served_by(containers_local, "/v1/read")["containers"] == {"GET"}
    assert {"wait", "live"}.isdisjoint(containers_local.functions)


def test_a_long_poll_that_ends_without_data_is_204(viewer: httpx.Client, path: str) -> None:
    viewer.put(path, headers=TEXT)
    answer = viewer.get(path, params={"offset": "now", "live": "long-poll"})
    assert answer.status_code == 204
    assert int(answer.headers["stream-cursor"]) > 0


def test_requests_past_the_edge_are_refused(containers_local: AwsLocal, path: str) -> None:
    assert containers_local.containers is not None
    url = f"http://127.0.0.1:{containers_local.containers.balancer.port}{path}"
    assert httpx.get(url, timeout=SECONDS, trust_env=False).status_code == 403


async def write(client: httpx.AsyncClient, path: str, numbers: range) -> None:
    for number in numbers:
        answer = await client.post(path, headers=TEXT, content=f"{number}\n")
        assert answer.status_code == 204, answer.text


async def disturb_readers(stack: AwsLocal, path: str, count: int) -> ResumingAudience:
    """Kill one container while readers hang on both, start it again, and drain the other."""
    containers = stack.containers
    assert containers is not None
    # On a busy machine some are just connecting again.
    most = count * 4 // 5
    async with httpx.AsyncClient(base_url=stack.url, timeout=SECONDS, trust_env=False) as client:
        created = await client.put(path, headers=TEXT)
        offset = created.headers["stream-next-offset"]
        audience = ResumingAudience(Address("127.0.0.1", stack.port), path, offset, count)
        try:
            await audience.open()
            for number in (0, 1):
                await asyncio.to_thread(containers.wait_for_connections, number, most // 2)
            await write(client, path, range(10))
            # What is written while a process dies must reach its readers, too.
            writing = asyncio.create_task(write(client, path, range(10, 40)))
            await asyncio.to_thread(containers.kill, 0)
            await writing
            await audience.wait_for(40, SECONDS)
            assert audience.endings.broken >= most // 2
            broken = audience.endings.broken
            await asyncio.to_thread(containers.start, 0)
            await asyncio.to_thread(containers.wait_for_connections, 1, most)
            writing = asyncio.create_task(write(client, path, range(40, 70)))
            await asyncio.to_thread(containers.drain, 1)
            await writing
            await audience.wait_for(70, SECONDS)
            assert audience.endings.broken - broken <= count - most
            assert audience.endings.whole >= most
            assert audience.wrong(70) == []
        finally:
            await audience.close()
            await asyncio.to_thread(containers.start_missing)
    return audience


async def test_readers_of_a_container_that_ends_lose_and_repeat_nothing(
    containers_local: AwsLocal, path: str
) -> None:
    """The last test: it replaces processes that tests share."""
    await disturb_readers(containers_local, path, 60)
