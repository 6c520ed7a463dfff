"""Aviso inside the test process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.clock import Clock, system_clock
from tests.support.aviso import Aviso, Make, settings


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """Starts Aviso over a data directory; another one over the same after the first was stopped."""
    running: list[Aviso] = []

    async def start(clock: Clock = system_clock, **given: Any) -> Aviso:
        for before in running:
            await before.application.stop()
        running.clear()
        aviso = Aviso(settings(**{"data": str(tmp_path / "data"), **given}), clock)
        await aviso.application.start()
        running.append(aviso)
        return aviso

    yield start
    for each in running:
        await each.application.stop()


@pytest.fixture
async def aviso(make: Make) -> Aviso:
    return await make()
