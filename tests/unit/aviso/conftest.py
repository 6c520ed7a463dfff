"""Aviso in the test process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.clock import Clock, system_clock
from tests.support.aviso import Aviso, StartAviso, make_settings


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[StartAviso]:
    """Start Aviso with a data directory. Another call stops the first and reuses its data."""
    running: list[Aviso] = []

    async def start_aviso(clock: Clock = system_clock, **overrides: Any) -> Aviso:
        for previous in running:
            await previous.application.stop()
        running.clear()
        aviso = Aviso(make_settings(**{"data": str(tmp_path / "data"), **overrides}), clock)
        await aviso.application.start()
        running.append(aviso)
        return aviso

    yield start_aviso
    for each in running:
        await each.application.stop()


@pytest.fixture
async def aviso(start: StartAviso) -> Aviso:
    return await start()
