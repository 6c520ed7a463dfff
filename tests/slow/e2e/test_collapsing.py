"""Origin requests of large audiences, of public and of private streams."""

from __future__ import annotations

import secrets

import pytest

from devtools.load.audience import measure, table
from devtools.local_aws.stack import AwsLocal
from tests.e2e.private import each_its_own
from tests.e2e.test_collapsing import assert_collapsed


@pytest.mark.parametrize(("streams", "clients"), [(1, 1000), (5, 200)])
async def test_long_polls_of_many_collapse(aws_local: AwsLocal, streams: int, clients: int) -> None:
    name = f"audience-{streams}"
    result = await measure(aws_local, name, streams=streams, clients=clients, writes=12, idle=5)
    print(table([result]))
    assert_collapsed(result)


async def test_long_polls_of_many_with_different_tokens_collapse(closed_local: AwsLocal) -> None:
    name = f"private/audience-{secrets.token_hex(4)}"
    result = await measure(
        closed_local, name, streams=1, clients=500, writes=10, idle=5, credentials=each_its_own
    )
    print(table([result]))
    assert_collapsed(result)
