"""The bucket: objects and ranges of them, and the same unreliable way to them."""

from __future__ import annotations

import asyncio
import random

import pytest

from devtools.dynamodb_simulator.bucket import MemoryBucket
from devtools.dynamodb_simulator.loop import run
from devtools.dynamodb_simulator.network import Faults
from tailrace.errors import StoreUnavailable


def test_an_object_is_there_until_it_is_deleted() -> None:
    async def main() -> None:
        bucket = MemoryBucket(random.Random(1))
        await bucket.put("a", b"one")
        await bucket.put("a", b"never stored: a key is used once")
        await bucket.put("b", b"three")
        assert await bucket.get("a") == b"one"
        await bucket.delete(["a", "never there"])
        with pytest.raises(KeyError):
            await bucket.get("a")
        assert bucket.objects == {"b": b"three"}

    run(1, main)


def test_ranges_of_objects_are_read() -> None:
    async def main() -> None:
        bucket = MemoryBucket(random.Random(1))
        await bucket.put("a", b"012345")
        assert await bucket.get("a", 2, 4) == b"23"
        assert await bucket.get("a", 4, 99) == b"45"
        with pytest.raises(IndexError):
            await bucket.get("a", 6, 8)
        await bucket.delete(["a"])
        with pytest.raises(KeyError):
            await bucket.get("a", 2, 4)

    run(1, main)


def test_a_call_with_a_lost_response_takes_effect() -> None:
    async def main() -> None:
        bucket = MemoryBucket(random.Random(1), faults=Faults(lost_answer=1))
        with pytest.raises(StoreUnavailable):
            await bucket.put("a", b"body")
        assert bucket.objects == {"a": b"body"}
        assert [event.subject for event in bucket.trace()] == ["a"] * 5

    run(1, main)


def test_a_put_of_a_killed_process_may_take_effect() -> None:
    async def main(seed: int) -> tuple[bool, int]:
        bucket = MemoryBucket(random.Random(seed))
        handle = bucket.connect()
        task = asyncio.create_task(handle.put("a", b"body"))
        await asyncio.sleep(0.01)
        handle.cut()
        await asyncio.sleep(60)
        return task.done(), len(bucket.objects)

    outcomes = {run(seed, lambda seed=seed: main(seed)) for seed in range(60)}  # type: ignore[misc]
    assert {(False, 0), (False, 1)} <= outcomes


def test_a_killed_process_may_delete_only_some() -> None:
    async def main(seed: int) -> int:
        bucket = MemoryBucket(random.Random(seed))
        keys = [f"{number}" for number in range(8)]
        bucket.objects.update(dict.fromkeys(keys, b""))
        handle = bucket.connect()
        task = asyncio.create_task(handle.delete(keys))
        await asyncio.sleep(0.03)
        handle.cut()
        await asyncio.sleep(60)
        assert not task.done() or not bucket.objects
        return len(bucket.objects)

    assert len({run(seed, lambda seed=seed: main(seed)) for seed in range(80)}) > 3  # type: ignore[misc]
