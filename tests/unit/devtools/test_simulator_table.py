"""The table in time: delays, staleness, faults and crashes, all of them from one seed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from devtools.dynamodb_simulator.loop import run
from devtools.dynamodb_simulator.network import CALM, Faults
from devtools.dynamodb_simulator.table import Handle, MemoryTable
from tailrace.aws.client.failures import (
    CallFailed,
    ConditionFailed,
    Refused,
    Throttled,
    Unavailable,
)
from tests.integration.devtools.simulator.test_semantics import (
    action,
    due,
    get,
    item,
    key,
    put,
    query,
    sorts,
    values,
)

T = TypeVar("T")
Story = Callable[[MemoryTable], Coroutine[Any, Any, T]]


def play(seed: int, story: Story[T], **options: Any) -> T:
    async def main() -> T:
        return await story(MemoryTable(random.Random(seed), **options))

    return run(seed, main)


def claim(s: str, who: str) -> dict[str, Any]:
    return {
        "Item": {**key(s), **item(who=who)},
        "ConditionExpression": "attribute_not_exists(s)",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


async def race(table: MemoryTable) -> list[str]:
    """Five processes claim ten slots; who thinks that it won each?"""
    winners: list[str] = []

    async def process(handle: Handle, name: str) -> None:
        for slot in range(10):
            try:
                await handle.call("PutItem", claim(f"{slot}", name))
            except ConditionFailed as lost:
                if (lost.item or {})["who"] != {"S": name}:
                    continue
            except CallFailed:
                continue
            winners.append(f"{slot} {name}")

    await asyncio.gather(*(process(table.connect(), name) for name in "abcde"))
    return winners


def test_a_seed_reproduces_its_trace() -> None:
    async def story(table: MemoryTable) -> str:
        await race(table)
        return table.story()

    faults = Faults.some(0.05)
    stories = [play(seed, story, faults=faults) for seed in (1, 1, 2)]
    assert stories[0] == stories[1] != stories[2]
    assert "client 3" in stories[0]
    assert "ConditionFailed" in stories[0]
    assert "lost_answer" in stories[0]


def test_a_slot_has_one_winner_under_all_faults() -> None:
    async def story(table: MemoryTable) -> set[str]:
        winners = await race(table)
        table.faults = CALM
        await asyncio.sleep(60)
        for winner in winners:
            slot, name = winner.split()
            stored = await get(table, slot)
            assert stored is not None
            assert stored["who"] == {"S": name}
        return {winner.split()[1] for winner in winners}

    names: set[str] = set()
    for seed in range(30):
        names |= play(seed, story, faults=Faults.some(0.08))
    assert names == set("abcde")


def test_calls_take_time_and_overtake_each_other() -> None:
    async def story(table: MemoryTable) -> str:
        async def write(number: int) -> None:
            await put(table, "a", n=number)

        await asyncio.gather(*(write(number) for number in range(5)))
        assert time.monotonic() > 0
        return "".join(change.after["n"]["N"] for change in table.changes if change.after)

    assert len({play(seed, story) for seed in range(50)}) > 30


# Staleness


def test_an_eventual_read_may_be_stale_for_so_long() -> None:
    async def story(table: MemoryTable) -> tuple[bool, bool]:
        await put(table, "a", n=1)
        await asyncio.sleep(1)
        await put(table, "a", n=2)
        assert await get(table, "a") == {**key("a"), **item(n=2)}
        first = await get(table, "a", ConsistentRead=False)
        found = await query(table, "p = :p", values(p="chain"))
        await asyncio.sleep(1)
        assert await get(table, "a", ConsistentRead=False) == {**key("a"), **item(n=2)}
        stale = {**key("a"), **item(n=1)}
        return first == stale, found["Items"] == [stale]

    seen = {play(seed, story, lag=0.5) for seed in range(100)}
    assert seen == {(a, b) for a in (True, False) for b in (True, False)}


def test_a_deleted_item_may_be_read_for_so_long() -> None:
    async def story(table: MemoryTable) -> bool:
        await put(table, "a")
        await asyncio.sleep(30)
        await table.call("DeleteItem", {"Key": key("a")})
        assert await get(table, "a") is None
        stale = await get(table, "a", ConsistentRead=False) is not None
        await asyncio.sleep(30)
        await put(table, "b")
        assert sorts(await query(table, "p = :p", values(p="chain"), ConsistentRead=True)) == ["b"]
        return stale

    assert {play(seed, story) for seed in range(50)} == {True, False}


def test_each_item_has_its_own_index_lag() -> None:
    async def story(table: MemoryTable) -> str:
        for name in ("a", "b"):
            await put(table, name, g="x", d=1)
        found = "".join(sorts(await due(table)))
        await asyncio.sleep(1)
        assert sorts(await due(table)) == ["a", "b"]
        return found

    assert {play(seed, story) for seed in range(100)} == {"", "a", "b", "ab"}


def test_a_query_may_see_a_transaction_half_done_until_it_is_answered() -> None:
    async def story(table: MemoryTable) -> str:
        actions = [action("Put", "a"), action("Put", "b")]
        writing = asyncio.create_task(table.call("TransactWriteItems", {"TransactItems": actions}))
        seen: set[str] = set()
        while not writing.done():
            answer = await query(table, "p = :p", values(p="chain"), ConsistentRead=True)
            seen.add("".join(sorts(answer)))
        answer = await query(table, "p = :p", values(p="chain"), ConsistentRead=True)
        assert sorts(answer) == ["a", "b"]
        return " ".join(sorted(seen & {"a", "b"}))

    halves = {play(seed, story) for seed in range(100)}
    assert {"", "a", "b"} <= halves


def test_queries_see_everything_that_was_read_before() -> None:
    async def story(table: MemoryTable) -> None:
        actions = [action("Put", "a"), action("Put", "b")]
        writing = asyncio.create_task(table.call("TransactWriteItems", {"TransactItems": actions}))
        while await get(table, "a") is None:
            pass
        found = await query(table, "p = :p", values(p="chain"), ConsistentRead=True)
        assert "a" in sorts(found)
        await writing

    for seed in range(60):
        play(seed, story)


def test_pages_can_be_tiny() -> None:
    async def story(table: MemoryTable) -> int:
        for number in range(5):
            await put(table, f"{number}")
        answer = await query(table, "p = :p", values(p="chain"), ConsistentRead=True)
        assert answer["LastEvaluatedKey"] == key("0")
        return int(answer["Count"])

    assert play(1, story, page_bytes=1) == 1


# Faults


def test_a_lost_request_has_no_effect_and_an_unknown_outcome() -> None:
    async def story(table: MemoryTable) -> None:
        with pytest.raises(Unavailable) as caught:
            await put(table, "a")
        assert caught.value.unclear
        await asyncio.sleep(60)
        assert not list(table.items())
        assert len(table.trace()) == 5, "four attempts, and the end"

    play(1, story, faults=Faults(lost_request=1))


def test_a_lost_answer_makes_a_claim_collide_with_itself() -> None:
    async def story(table: MemoryTable) -> str:
        try:
            await table.call("PutItem", claim("a", "me"))
        except ConditionFailed as failed:
            return f"collided with {(failed.item or {})['who']['S']}"
        except Unavailable as unavailable:
            return f"unclear: {unavailable.unclear}, stored: {len(list(table.items()))}"
        return "done"

    outcomes = {play(seed, story, faults=Faults(lost_answer=0.6)) for seed in range(100)}
    assert outcomes == {"done", "collided with me", "unclear: True, stored: 1"}


def test_a_repeated_transaction_is_recognised() -> None:
    async def story(table: MemoryTable) -> int:
        give = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": values(n=1)}
        request = {"TransactItems": [action("Update", "a", **give)]}
        for _ in range(2):
            await table.call("TransactWriteItems", request)
        table.faults = CALM
        await asyncio.sleep(60)
        assert await get(table, "a") == {**key("a"), **item(n=2)}
        return len(table.trace())

    faults = Faults(lost_answer=0.1, late=0.1)
    assert max(play(seed, story, faults=faults) for seed in range(50)) > 4


def test_a_late_request_takes_effect_after_the_timeout_of_its_client() -> None:
    async def story(table: MemoryTable) -> str:
        with suppress(Unavailable):
            await put(table, "a", n=1)
        table.faults = CALM
        await put(table, "a", n=2)
        await asyncio.sleep(60)
        return "".join(change.after["n"]["N"] for change in table.changes if change.after)

    stories = {play(seed, story, faults=Faults(late=0.7)) for seed in range(100)}
    assert {"12", "121"} <= stories


def test_a_call_throttled_in_all_attempts_has_no_effect() -> None:
    async def story(table: MemoryTable) -> bool:
        with pytest.raises(Throttled) as caught:
            await put(table, "a")
        assert not list(table.items())
        return caught.value.hot_key

    assert {play(seed, story, faults=Faults(throttled=1)) for seed in range(20)} == {True, False}


def test_without_a_connection_it_is_clear_that_nothing_was_done() -> None:
    async def story(table: MemoryTable) -> None:
        with pytest.raises(Unavailable) as caught:
            await put(table, "a")
        assert not caught.value.unclear

    play(1, story, faults=Faults(unreachable=1))


def test_retries_recover_from_most_faults() -> None:
    async def story(table: MemoryTable) -> None:
        for number in range(20):
            await put(table, f"{number}")
        assert len(list(table.items())) == 20

    faults = Faults(lost_request=0.02, lost_answer=0.02, throttled=0.02)
    for seed in range(20):
        play(seed, story, faults=faults)


def test_a_batch_may_return_unprocessed_writes() -> None:
    entries = [{"PutRequest": {"Item": key(f"{number}")}} for number in range(10)]

    async def story(table: MemoryTable) -> int:
        left: dict[str, Any] = {"tailrace": entries}
        rounds = 0
        while left:
            answer = await table.call("BatchWriteItem", {"RequestItems": left})
            left = answer["UnprocessedItems"]
            rounds += 1
        assert len(list(table.items())) == 10
        return rounds

    assert max(play(seed, story, faults=Faults(unprocessed=0.5)) for seed in range(20)) > 2


def test_a_transaction_that_would_break_an_item_is_refused() -> None:
    async def story(table: MemoryTable) -> None:
        await put(table, "a", n="text")
        give = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": values(n=1)}
        actions = [action("Put", "b"), action("Update", "a", **give)]
        with pytest.raises(Refused, match="None, ValidationError"):
            await table.call("TransactWriteItems", {"TransactItems": actions})
        assert await get(table, "b") is None

    play(1, story)


# Crashes


async def dying(table: MemoryTable, request: dict[str, Any], operation: str) -> asyncio.Task[Any]:
    """A process that is killed while it calls."""
    handle = table.connect()
    task = asyncio.create_task(handle.call(operation, request))
    await asyncio.sleep(random.uniform(0, 0.01))
    if not task.done():
        handle.cut()
    return task


def test_a_call_of_a_killed_process_never_returns_and_may_have_been_done() -> None:
    async def story(table: MemoryTable) -> tuple[bool, bool]:
        task = await dying(table, claim("a", "me"), "PutItem")
        await asyncio.sleep(60)
        return task.done(), bool(list(table.items()))

    outcomes = {play(seed, story) for seed in range(100)}
    assert outcomes == {(False, False), (False, True), (True, True)}


def test_a_killed_process_does_nothing_new() -> None:
    async def story(table: MemoryTable) -> None:
        handle = table.connect()
        handle.cut()
        task = asyncio.create_task(handle.call("PutItem", {"Item": key("a")}))
        await asyncio.sleep(60)
        assert not task.done()
        assert not list(table.items())
        await put(table, "b")

    play(1, story)


def test_a_killed_process_may_leave_half_a_batch() -> None:
    entries = [{"PutRequest": {"Item": key(f"{number}")}} for number in range(10)]

    async def story(table: MemoryTable) -> int:
        await dying(table, {"RequestItems": {"tailrace": entries}}, "BatchWriteItem")
        await asyncio.sleep(60)
        return len(list(table.items()))

    assert len({play(seed, story) for seed in range(100)}) > 4


def test_a_cancelled_call_may_have_been_sent() -> None:
    async def story(table: MemoryTable) -> bool:
        task = asyncio.create_task(put(table, "a"))
        await asyncio.sleep(0.0003)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(60)
        return bool(list(table.items()))

    assert {play(seed, story) for seed in range(50)} == {True, False}


def test_a_closed_client_refuses_calls() -> None:
    async def story(table: MemoryTable) -> None:
        await table.close()
        with pytest.raises(RuntimeError, match="closed"):
            await put(table, "a")

    play(1, story)


def test_requests_for_other_tables_are_refused() -> None:
    async def story(table: MemoryTable) -> None:
        await put(table, "a")
        with pytest.raises(Refused, match="ResourceNotFoundException"):
            await table.call("GetItem", {"TableName": "other", "Key": key("a")})

    play(1, story, name="tailrace")


@pytest.mark.parametrize(
    "more", [{"Expected": {}}, {"ReturnItemCollectionMetrics": "SIZE"}, {"Typo": True}]
)
def test_a_parameter_that_is_not_modelled_is_refused(more: dict[str, Any]) -> None:
    async def story(table: MemoryTable) -> None:
        with pytest.raises(Refused, match="not modelled"):
            await table.call("PutItem", {"Item": key("a"), **more})

    play(1, story)
