"""Thousands of schedules: each mix of clients with seeds that tests/integration does not try.

TEST_SEED is the first one, TEST_SEEDS how many are tried in all.
"""

from __future__ import annotations

import os

import pytest

from tests.integration.simulation.actors import MIXES
from tests.integration.simulation.test_streams import fast, play

__all__ = ["fast"]

FIRST = int(os.environ.get("TEST_SEED", "100"))
SEEDS = int(os.environ.get("TEST_SEEDS", "4000"))
BATCH = 25


@pytest.mark.parametrize("first", range(FIRST, FIRST + max(1, SEEDS // len(MIXES)), BATCH))
@pytest.mark.parametrize("mix", MIXES)
def test_every_schedule_keeps_every_promise(mix: str, first: int) -> None:
    for seed in range(first, min(first + BATCH, FIRST + max(1, SEEDS // len(MIXES)))):
        play(mix, seed)
