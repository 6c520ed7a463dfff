"""The archiver of a world: makes, merges and trims segments; it can be killed."""

from __future__ import annotations

import asyncio

from tailrace.clock import system_clock
from tailrace.errors import StoreUnavailable, StreamTooHot
from tailrace.log.retention import Keep
from tailrace.segments.merge import Grid
from tailrace.store.dynamodb import retention, segments, sweeping
from tailrace.store.dynamodb.bodies import Bodies
from tailrace.store.dynamodb.table import Table
from tests.integration.simulation.world import GRACE, TABLE, World
from tests.support import archiving
from tests.support.archiving import Most

GRID = Grid(1500, 9)
"""Cells of a few entries, of which some do not fit into one."""


class Archivist:
    """A process with nothing but its lines to the table and to the bucket."""

    def __init__(self, world: World) -> None:
        world.archived = True
        self._chance = world.chance
        self._retention = world.mix.retention
        self._line, self._bucket = world.table.connect(), world.bucket.connect()
        self._table = Table(self._line, TABLE)

    def kill(self) -> None:
        self._line.cut()
        self._bucket.cut()

    async def work(self, path: str) -> None:
        """Anything that there may be to do."""
        dice = self._chance.random()
        try:
            if dice < 0.4:
                pause = self._chance.choice((0.0, 0.0, 60.0)) * self._chance.random()
                await self.archive(path, self._chance.randint(1, 4), pause)
            elif dice < 0.6:
                await self.merge(path)
            elif dice < 0.8:
                await self.trim(path)
            elif dice < 0.9:
                await self.sweep()
            elif self._retention:
                await self.retain(path, Keep(None, self._chance.choice((1, 300))))
        except (StoreUnavailable, StreamTooHot):
            return

    async def archive(self, path: str, most: int = 1, pause: float = 0.0) -> bool:
        """Also of a stream that only its forks still need."""
        name = await archiving.name_of(self._table, path)
        if name is None:
            return False
        uploaded = await archiving.upload(
            self._table, self._bucket, name.stream, Most(most), system_clock(), GRID
        )
        if uploaded is None:
            return False
        # Whatever happens meanwhile, the commit alone has to keep order.
        await asyncio.sleep(pause)
        manifest = uploaded.manifest._replace(committed_at=system_clock())
        return await segments.commit(self._table, name.stream, manifest)

    async def merge(self, path: str) -> bool:
        name = await archiving.name_of(self._table, path)
        if name is None:
            return False
        due = system_clock() + GRACE * 1000
        made = await archiving.merge(self._table, self._bucket, name.stream.id, GRID, due)
        return bool(made)

    async def trim(self, path: str) -> None:
        await archiving.trim(self._table, path, system_clock(), GRACE)

    async def retain(self, path: str, keep: Keep) -> None:
        name, now = await archiving.name_of(self._table, path), system_clock()
        if name is None:
            return
        plan = await retention.plan(self._table, self._bucket, name, keep, now, GRACE)
        if plan is not None:
            await retention.carry_out(self._table, plan, system_clock() + GRACE * 1000)

    async def sweep(self) -> None:
        bodies = Bodies(self._table, self._bucket, system_clock)
        await sweeping.sweep(self._table, bodies, system_clock(), GRACE * 1000)


async def archive_all(world: World) -> None:
    """All entries that fit are in segments, these are merged, and the slots have left the table."""
    working = Archivist(world)
    for path in world.mix.paths:
        for most in (3, 1):
            while await working.archive(path, most):
                pass
    await asyncio.sleep(GRACE)
    for path in world.mix.paths:
        while await working.merge(path):
            pass
        await working.trim(path)
