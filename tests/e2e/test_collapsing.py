"""Readers that wait at the same place share origin requests, and none of them misses a message."""

from __future__ import annotations

from devtools.load.audience import Result, measure, table
from devtools.local_aws.stack import AwsLocal

SHARING = 5
"""Polls that one origin request answers on average, at least. On a quiet machine it is about half
of the readers: an answer is kept for a second, and readers that come later ask anew."""


async def test_collapsed_long_polls_miss_no_message(aws_local: AwsLocal) -> None:
    result = await measure(aws_local, "audience", streams=1, clients=60, writes=6, idle=3)
    print(table([result]))
    assert_collapsed(result)


def assert_collapsed(result: Result) -> None:
    assert result.wrong == 0
    assert result.delivered == result.streams * result.clients * result.writes
    assert result.cycles > result.streams * result.writes
    assert result.asked * SHARING <= result.polls
