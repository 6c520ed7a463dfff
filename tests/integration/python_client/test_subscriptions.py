"""Workers of pull-wake subscriptions, on Tailrace: every message at least once, one at a time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from devtools.server import Server
from tailrace.client import (
    AsyncClient,
    BadRequestError,
    Client,
    ExistsError,
    NotFoundError,
    RetryPolicy,
    Stream,
    Subscription,
)

JSON = "application/json"
QUICK = RetryPolicy(attempts=None, first_pause=0.01, longest_pause=0.2)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, retries=QUICK) as client:
        yield client


@pytest.fixture
def jobs(client: Client) -> Subscription:
    """A subscription of the test's own."""
    subscription = client.subscription(f"jobs-{uuid4().hex}")
    subscription.create(
        f"wakes-{subscription.name}", pattern=f"{subscription.name}/**", lease_ttl_ms=1000
    )
    return subscription


def inbox(jobs: Subscription, name: str, *messages: object) -> Stream:
    stream = jobs.client.stream(f"{jobs.name}/{name}", content_type=JSON)
    stream.create()
    stream.append_many(messages)
    return stream


def handled(jobs: Subscription) -> list[tuple[str, list[object]]]:
    prefix = len(jobs.name) + 1
    return [(item.name[prefix:], item.items()) for item in jobs.work(once=True)]


def test_a_worker_handles_what_is_pending_once(jobs: Subscription) -> None:
    assert handled(jobs) == []
    inbox(jobs, "a b", 1, 2)
    inbox(jobs, "c", 3)
    assert sorted(handled(jobs)) == [("a b", [1, 2]), ("c", [3])]
    assert handled(jobs) == []
    inbox(jobs, "c", 4)
    assert handled(jobs) == [("c", [4])]


def test_an_item_that_failed_comes_again_at_once(jobs: Subscription) -> None:
    inbox(jobs, "a", 1)

    def fail() -> None:
        for _ in jobs.work(once=True):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert handled(jobs) == [("a", [1])]


def test_a_lease_is_extended_while_an_item_is_handled(client: Client) -> None:
    jobs = client.subscription(f"jobs-{uuid4().hex}")
    jobs.create(f"wakes-{jobs.name}", pattern=f"{jobs.name}/**", lease_ttl_ms=6000)
    inbox(jobs, "a", 1)
    inbox(jobs, "b", 2)
    items = []
    for item in jobs.work(once=True):
        items += item.items()
        time.sleep(4)  # Both are longer than the lease.
    assert sorted(items) == [1, 2]


def test_a_lease_that_was_lost_is_not_used(jobs: Subscription) -> None:
    inbox(jobs, "a", 1)
    first = jobs.work(once=True)
    assert next(first).items() == [1]
    jobs.delete()
    jobs.create(f"wakes-{jobs.name}", pattern=f"{jobs.name}/**")
    assert list(first) == []


def test_a_worker_waits_for_wakes(jobs: Subscription) -> None:
    items: list[object] = []

    def work() -> None:
        for item in jobs.work():
            items.extend(item.items())
            if "end" in items:
                return

    worker = threading.Thread(target=work)
    worker.start()
    for message in (1, 2, "end"):
        inbox(jobs, "a", message)
        time.sleep(0.1)
    worker.join(60)
    assert not worker.is_alive()
    assert items == [1, 2, "end"]


async def test_workers_share_the_work(server: Server, jobs: Subscription) -> None:
    items: list[object] = []
    complete = asyncio.Event()
    async with AsyncClient(server.url, retries=QUICK) as client:
        subscription = client.subscription(jobs.name)

        async def work() -> None:
            async for item in subscription.work():
                items.extend(item.items())
                if set(items) == set(range(20)):
                    complete.set()

        workers = [asyncio.create_task(work()) for _ in range(3)]
        for number in range(20):
            stream = client.stream(f"{jobs.name}/{number % 4}", content_type=JSON)
            await stream.create()
            await stream.append(number)
        await asyncio.wait_for(complete.wait(), 60)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        assert (await subscription.get())["type"] == "pull-wake"


def test_a_worker_survives_a_restart(own_server: Server) -> None:
    with Client(own_server.url, retries=QUICK, live_retries=QUICK) as client:
        jobs = client.subscription("jobs")
        jobs.create("wakes", pattern="inbox/**", lease_ttl_ms=1000)
        items: list[object] = []

        def work() -> None:
            for item in jobs.work():
                items.extend(item.items())
                if "end" in items:
                    return

        worker = threading.Thread(target=work)
        worker.start()
        stream = client.stream("inbox/a", content_type=JSON)
        stream.create()
        stream.append(1)
        own_server.kill()
        own_server.start()
        stream.append("end")
        worker.join(60)
        assert not worker.is_alive()
    assert (items[0], items[-1]) == (1, "end")


def test_wrong_usage(client: Client, jobs: Subscription) -> None:
    with pytest.raises(ExistsError):
        jobs.create(f"wakes-{jobs.name}", pattern="other/**")
    missing = client.subscription("missing")
    with pytest.raises(NotFoundError):
        missing.get()
    with pytest.raises(NotFoundError):
        next(iter(missing.work()))
    with pytest.raises(BadRequestError):
        missing.create("wakes-missing")
