"""Each live reader gets each message, once and in order, soon after it was appended.

A seed is a story, and these are some of those that are hard; tests/slow has many more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.live import STORES, play

HARD = [
    *(("sse", "sqlite", seed) for seed in (6, 9)),
    *(("sse", "dynamodb", seed) for seed in (5, 21)),
    *(("long-poll", store, 0) for store in STORES),
    ("cable", "sqlite", 0),
    *(("cable", "dynamodb", seed) for seed in (22, 28)),
    *(("aviso", "sqlite", seed) for seed in (6, 7)),
    *(("aviso", "dynamodb", seed) for seed in (2, 27)),
]


@pytest.mark.parametrize(("protocol", "store", "seed"), HARD)
def test_every_live_reader_is_told(protocol: str, store: str, seed: int, tmp_path: Path) -> None:
    play(protocol, store, seed, tmp_path)


def test_readers_are_slow_and_streams_are_created_anew(tmp_path: Path) -> None:
    world = play("sse", "sqlite", 6, tmp_path)
    lines = [reading.line for readings in world.readings for reading in readings]
    assert len(world.lives) > 1
    assert any(line.filled for line in lines)
