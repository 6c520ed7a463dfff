"""An audience costs what one reader costs: the cache lets one long-poll of each cycle through."""

from __future__ import annotations

import pytest

from tests.e2e.collapsing import Result, measure, table
from tests.e2e.stack import AwsLocal

MOST = 2
"""Origin requests of one poll cycle: one, and one more for clients who come when the answer, which
is kept for a second, has been forgotten."""


@pytest.mark.parametrize(
    ("streams", "clients"), [(1, 1000), pytest.param(5, 200, marks=pytest.mark.slow)]
)
async def test_long_polls_collapse_and_nobody_misses_a_message(
    aws_local: AwsLocal, streams: int, clients: int
) -> None:
    name = f"audience-{streams}"
    result = await measure(aws_local, name, streams=streams, clients=clients, writes=12, idle=5)
    print(table([result]))
    assert_collapsed(result)


def assert_collapsed(result: Result) -> None:
    assert result.wrong == 0
    assert result.delivered == result.streams * result.clients * result.writes
    assert result.cycles > result.streams * result.writes
    assert result.asked <= MOST * result.cycles
    assert max(result.per_key) <= MOST
