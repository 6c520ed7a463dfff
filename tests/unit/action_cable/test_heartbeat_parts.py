"""How connections are divided between heartbeats."""

from __future__ import annotations

import itertools

import pytest

from tailrace.limits import GATEWAY_CONNECTION_SHARDS
from tailrace.protocols.action_cable.api_gateway.heartbeat_lease import (
    holder_of,
    next_count,
    shards_of,
)

COUNTS = [1, 2, 4, 8, 16]


@pytest.mark.parametrize("count", COUNTS)
def test_every_shard_is_served_once(count: int) -> None:
    shares = [shards_of(part, count, range(count)) for part in range(count)]
    assert sorted(itertools.chain(*shares)) == list(range(GATEWAY_CONNECTION_SHARDS))
    assert {len(each) for each in shares} == {GATEWAY_CONNECTION_SHARDS // count}


@pytest.mark.parametrize("count", COUNTS)
def test_every_shard_is_served_once_while_parts_are_missing(count: int) -> None:
    for size in range(1, min(count, 8) + 1):
        for alive in itertools.combinations(range(count), size):
            if 0 in alive:
                shares = [shards_of(part, count, alive) for part in alive]
                assert sorted(itertools.chain(*shares)) == list(range(GATEWAY_CONNECTION_SHARDS))


def test_a_part_that_divides_serves_the_new_one_until_that_has_begun() -> None:
    before = shards_of(1, 2, {0, 1})
    assert shards_of(1, 4, {0, 1}) == before
    assert shards_of(1, 4, {0, 1, 3}) | shards_of(3, 4, {0, 1, 3}) == before


def test_missing_parts_have_one_that_starts_them() -> None:
    alive = {0, 1, 5}
    assert [holder_of(part, 8, alive) for part in range(8)] == [0, 1, 0, 1, 0, 5, 0, 1]


@pytest.mark.parametrize(
    ("count", "loads", "expected"),
    [
        (1, [0], 1),
        (1, [100], 1),
        (1, [101], 2),
        (1, [555], 8),
        (1, [5000], 16),
        (2, [90, 90], 2),
        (2, [20, 20], 1),
        (2, [0, 60], 2),
        (4, [120, 40, 40, 40], 8),
        (4, [0, 0, 0, 0], 2),
        (16, [120] * 16, 16),
    ],
)
def test_the_number_of_parts_follows_their_loads(
    count: int, loads: list[int], expected: int
) -> None:
    assert next_count(count, loads) == expected


def test_a_change_is_not_taken_back_with_the_same_pings() -> None:
    for total in range(0, 2000, 7):
        count = next_count(1, [total])
        assert next_count(count, [total // count] * count) == count
