"""Thousands of scenarios of live readers, with seeds that tests/unit does not try.

TEST_SEED is the first one, TEST_SEEDS how many are tried of each protocol and store.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.live import PROTOCOLS, STORES, run_scenario

FIRST = int(os.environ.get("TEST_SEED", "100"))
SEEDS = int(os.environ.get("TEST_SEEDS", "400"))
BATCH = 100


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, BATCH))
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_live_reader_gets_each_message(
    protocol: str, store: str, first: int, tmp_path: Path
) -> None:
    for seed in range(first, min(first + BATCH, FIRST + SEEDS)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run_scenario(protocol, store, seed, folder)
