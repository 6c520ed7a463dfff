"""Many clients of Action Cable on the AWS path."""

from __future__ import annotations

import random
import time

import pytest

from devtools.local_aws.stack import AwsLocal
from tests.support.cable_load import check, hear_all


@pytest.fixture
def stream() -> str:
    return f"open/{time.time_ns()}"


async def test_a_hundred_on_one_stream(closed_local: AwsLocal, stream: str) -> None:
    batches = [[stream] * random.choice((1, 1, 4)) for _ in range(20)]
    listeners = await hear_all(closed_local, [stream], 100, batches, 5)
    assert {one.offset for one in listeners} == {sum(map(len, batches))}
    check(listeners, 20 * 5, restores=False)


async def test_a_hundred_streams_with_one_each(closed_local: AwsLocal, stream: str) -> None:
    names = [f"{stream}/{i}" for i in range(100)]
    waiting = names * 3
    random.shuffle(waiting)
    batches = [waiting[at : at + 20] for at in range(0, len(waiting), 20)]
    listeners = await hear_all(closed_local, names, 1, batches, 4)
    assert {one.offset for one in listeners} == {3}
