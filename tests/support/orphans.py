"""Days that pass for the embedded store while it sweeps."""

from __future__ import annotations

from tailrace.limits import ORPHAN_FILE_SECONDS
from tailrace.store.sqlite.store import SqliteStore


async def sweep_for_days(store: SqliteStore) -> None:
    """Sweep now, when orphans are marked, and a day later, when they are removed."""
    clock = store.maintenance._clock
    await store.sweep()
    store.maintenance._clock = lambda: clock() + ORPHAN_FILE_SECONDS * 1000
    await store.sweep()
    store.maintenance._clock = clock
