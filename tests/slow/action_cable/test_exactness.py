"""More orders in which functions may run: no message is lost, repeated or reordered."""

from __future__ import annotations

import pytest

from tests.integration.action_cable.api_gateway.test_exactness import come_and_go
from tests.integration.action_cable.api_gateway.world import World


@pytest.mark.parametrize("seed", range(1, 20))
async def test_clients_that_come_and_go_hear_everything_once_and_in_order(
    world: World, seed: int
) -> None:
    await come_and_go(world, seed)
