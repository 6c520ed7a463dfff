"""Readers that come and go at any time share origin requests, and none misses a message."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Iterator, Sequence

import pytest

from devtools.engines.ministack import Ministack
from devtools.load.arrivals import Stream, measure, table
from devtools.local_aws.stack import AwsLocal, Missing
from tests.e2e.private import each_its_own

MOST_PER_WRITE = 4
"""Origin requests for each write, however many readers there are."""


@pytest.fixture(scope="module")
def deployed_local(ministack: Ministack) -> Iterator[AwsLocal]:
    """A stack as it is deployed: its long-polls wait for 25 s."""
    try:
        with AwsLocal(ministack=ministack) as stack:
            yield stack
    except Missing as missing:
        pytest.skip(str(missing))


async def test_a_thousand_readers_at_any_time_take_few_origin_requests(
    deployed_local: AwsLocal,
) -> None:
    result = await measure(
        deployed_local, "arrivals", streams=1, present=1000, stay=60, every=1, seconds=25
    )
    print(table([result]))
    assert result.wrong == 0
    assert result.came > 1000
    assert result.per_write <= MOST_PER_WRITE


async def test_readers_with_different_tokens_share_just_so(closed_local: AwsLocal) -> None:
    result = await measure(
        closed_local,
        f"private/arrivals-{secrets.token_hex(4)}",
        streams=1,
        present=300,
        stay=60,
        every=1,
        seconds=20,
        credentials=each_its_own,
    )
    print(table([result]))
    assert result.wrong == 0
    assert result.per_write <= MOST_PER_WRITE


async def disturb(stack: AwsLocal, streams: Sequence[Stream]) -> None:
    """Throttle the waiting function, empty the cache, and kill environments, at random."""
    chance = random.Random(20_261_119)
    wait = stack.functions["wait"]
    before = wait.configuration.concurrency
    try:
        while True:
            await asyncio.sleep(chance.uniform(0.2, 1))
            match chance.randrange(3):
                case 0:
                    wait.limit(chance.choice([0, 1, before]))
                case 1:
                    wait.kill()
                case _:
                    for tag in {stream.tag for stream in streams} - {""}:
                        await asyncio.to_thread(stack.edge.purge, tag)
            if chance.random() < 0.5:
                wait.limit(before)
    finally:
        wait.limit(before)


async def test_faults_lose_and_repeat_nothing(aws_local: AwsLocal) -> None:
    name = f"faults-{secrets.token_hex(4)}"
    result = await measure(
        aws_local, name, streams=2, present=40, stay=20, every=0.5, seconds=20, disturb=disturb
    )
    print(table([result]), result.refused)
    assert result.wrong == 0
    assert result.refused > 0
