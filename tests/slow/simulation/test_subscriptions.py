"""Thousands of schedules of subscriptions, with seeds that tests/integration does not try.

TEST_SEED is the first one, TEST_SEEDS how many are tried in all.
"""

from __future__ import annotations

import os

import pytest

from tests.integration.simulation.test_subscriptions import TROUBLES, play, quiet

__all__ = ["quiet"]

FIRST = int(os.environ.get("TEST_SEED", "100"))
SEEDS = int(os.environ.get("TEST_SEEDS", "2000"))
BATCH = 25
LAST = FIRST + max(1, SEEDS // len(TROUBLES))


@pytest.mark.parametrize("first", range(FIRST, LAST, BATCH))
@pytest.mark.parametrize("trouble", TROUBLES)
def test_every_schedule_of_subscriptions_keeps_every_promise(trouble: str, first: int) -> None:
    for seed in range(first, min(first + BATCH, LAST)):
        play(trouble, seed)
