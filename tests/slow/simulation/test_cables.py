"""More schedules of deliveries in parts, and of heartbeats."""

from __future__ import annotations

import os

import pytest

from tests.integration.simulation.cables import test_deliveries, test_heartbeats
from tests.integration.simulation.cables.test_deliveries import small_parts
from tests.integration.simulation.cables.test_heartbeats import small_parts as few_pings

__all__ = ["few_pings", "small_parts"]

FIRST = int(os.environ.get("TEST_SEED", "100"))
SEEDS = int(os.environ.get("TEST_SEEDS", "4000"))
BATCH = 10


@pytest.mark.parametrize("first", range(FIRST, FIRST + max(1, SEEDS // 80), BATCH))
@pytest.mark.parametrize("mishap", test_deliveries.MISHAPS)
def test_each_client_gets_every_message_once_and_in_order(mishap: str, first: int) -> None:
    for seed in range(first, first + BATCH):
        test_deliveries.check(seed, test_deliveries.MISHAPS[mishap])


@pytest.mark.parametrize("first", range(FIRST, FIRST + max(1, SEEDS // 400), BATCH))
@pytest.mark.parametrize("mishap", test_heartbeats.MISHAPS)
def test_clients_are_pinged_in_time(mishap: str, first: int) -> None:
    for seed in range(first, first + BATCH):
        test_heartbeats.check(seed, test_heartbeats.MISHAPS[mishap])
