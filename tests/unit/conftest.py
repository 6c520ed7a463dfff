"""Files of these tests are in memory where the system has a place for that."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """No test here is about the disk, and to wait for one takes longer than all the rest."""
    place = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="tailrace-unit-", dir=place) as folder:
        yield Path(folder)
