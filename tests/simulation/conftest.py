"""The table that the tests of its semantics ask: one without delays."""

from __future__ import annotations

import random

import pytest

from tests.simulation.table import MemoryTable


@pytest.fixture
def table() -> MemoryTable:
    return MemoryTable(random.Random(0), latency=(0, 0), lag=0)
