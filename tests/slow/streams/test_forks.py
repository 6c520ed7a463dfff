"""More trees of forks than tests/unit has time for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.streams import Clock
from tests.unit.streams.test_forks import forks_are_copies


@pytest.mark.parametrize("seed", range(2, 30))
async def test_a_tree_of_forks_reads_like_independent_copies(tmp_path: Path, seed: int) -> None:
    await forks_are_copies(tmp_path / "data", Clock(), seed)
