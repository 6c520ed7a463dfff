"""Each live reader gets each message, once and in order, soon after it was appended.

A seed is a scenario. These are some hard ones; tests/slow has many more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.live import STORES, run_scenario

HARD = [
    *(("sse", "sqlite", seed) for seed in (6, 9)),
    *(("sse", "dynamodb", seed) for seed in (5, 21)),
    *(("long-poll", store, 0) for store in STORES),
    ("plain-long-poll", "sqlite", 0),
    *((protocol, store, 0) for protocol in ("many-sse", "many-long-poll") for store in STORES),
    ("cable", "sqlite", 0),
    *(("cable", "dynamodb", seed) for seed in (22, 28)),
    *(("aviso", "sqlite", seed) for seed in (6, 7)),
    *(("aviso", "dynamodb", seed) for seed in (2, 27)),
]


@pytest.mark.parametrize(("protocol", "store", "seed"), HARD)
def test_every_live_reader_gets_each_message(
    protocol: str, store: str, seed: int, tmp_path: Path
) -> None:
    run_scenario(protocol, store, seed, tmp_path)


def test_scenarios_have_slow_readers_and_recreated_streams(tmp_path: Path) -> None:
    """Both happen in some scenario; in which depends on how often the code under test yields."""
    for seed in range(6, 60):
        scenario = run_scenario("sse", "sqlite", seed, tmp_path / str(seed))
        sinks = [reading.sink for readings in scenario.readings for reading in readings]
        if len(scenario.incarnations) > 1 and any(sink.filled for sink in sinks):
            return
    raise AssertionError("no scenario has both")
