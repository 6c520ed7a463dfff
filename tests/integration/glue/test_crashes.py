"""A run of compaction may end at any call: the next run finishes, and no read has changed.

What Spark's workers do is done here one after the other, so that each of their calls to DynamoDB
and S3 can be the last.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import orjson
import pyarrow as pa
import pytest

from glue_jobs.compaction.build_segments import CELLS, Rules, _build_all
from glue_jobs.compaction.commit_segments import _commit_all
from glue_jobs.compaction.merge_and_trim import _merge_chain, _trim_chain
from glue_jobs.shared.workers import Backend, Row, arrow_schema
from tailrace.clock import system_clock
from tailrace.segments.merge import Grid
from tailrace.store.dynamodb.layout import entry_of, name_of
from tailrace.store.dynamodb.table import Table
from tests.integration.glue.lab import DAY, JSON, Lab, Memory, cell_row

T = TypeVar("T")

GRID = Grid(700, 1 << 16)
CALLS = 13
"""Of a run, as the last test says."""


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab.over(None, Memory.new()) as made:
        yield made


class Crash(BaseException):
    """The process is gone: nothing in it runs on."""


class Mortal:
    """DynamoDB and S3 for a process that ends before, or after, one of its calls."""

    def __init__(self, lab: Lab, last: int, *, done: bool) -> None:
        assert lab.store._backend is not None
        self._client = lab.store._backend.client
        self._bucket = lab.bucket
        self._last = last
        self._done = done
        self.calls = 0

    def over(self, table: str) -> Backend:
        return Backend(Table(self, table), self)

    async def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return await self._counted(lambda: self._client.call(operation, request))

    async def put(self, key: str, body: bytes) -> None:
        await self._counted(lambda: self._bucket.put(key, body))

    async def get(self, key: str, begin: int = 0, end: int | None = None) -> bytes:
        return await self._counted(lambda: self._bucket.get(key, begin, end))

    async def delete(self, keys: Sequence[str]) -> None:  # noqa: ARG002
        raise AssertionError("compaction removes no object itself")

    async def close(self) -> None: ...

    async def _counted(self, action: Callable[[], Awaitable[T]]) -> T:
        self.calls += 1
        this = self.calls
        dead = self._last and this > self._last
        if dead or (this == self._last and not self._done):
            raise Crash
        answer = await action()
        if this == self._last:
            raise Crash
        return answer


async def run(lab: Lab, mortal: Mortal, now: int) -> None:
    """A run over all streams, in the order of the job."""
    backend = mortal.over(lab.settings.table)
    held = await lab.items()
    names = {f"{name_of(i).stream.id:016x}": i for i in held if i["p"]["S"].startswith("N")}
    rows = [row for chain, name in names.items() for row in _waiting(held, chain, name)]
    rules = Rules(GRID, 4, 1 << 30, now)
    batch = pa.RecordBatch.from_pylist(rows, arrow_schema(CELLS))
    segments = [
        {**row, "path": names[row["chain"]]["s"]["S"], "config": names[row["chain"]]["config"]["S"]}
        async for some in _build_all(backend, iter([batch]), rules)
        for row in some
    ] if rows else []  # fmt: skip
    if segments:
        segments.sort(key=lambda row: (row["chain"], row["first"]))
        batch = pa.RecordBatch.from_pylist([{"refused": None, **row} for row in segments])
        async for _ in _commit_all(backend, iter([batch])):
            pass
    for chain in names:
        await _merge_chain(backend, {"chain": chain, "first": 0}, GRID, now, DAY // 1000)
    for chain, name in names.items():
        item = orjson.dumps(name).decode()
        await _trim_chain(backend, {"chain": chain, "item": item}, now, DAY // 1000)


def _waiting(held: Sequence[Row], chain: str, name: Row) -> list[Row]:
    named = name_of(name)
    entries = [entry_of(item) for item in held if item["p"]["S"] == f"C{chain}"]
    return [
        {
            **cell_row(named.stream.id, named.stream.config.mode, entry),
            "cell": hash((chain, GRID.cell(entry.slot, entry.size - entry.length))),
        }
        for entry in sorted(entries)
        if entry.has_data and entry.slot >= named.archived
    ]


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("last", range(1, CALLS + 1))
async def test_a_run_may_end_at_any_call(lab: Lab, last: int, done: bool) -> None:
    before = await prepared(lab)
    later = system_clock() + DAY + 1
    mortal = Mortal(lab, last, done=done)
    with pytest.raises(Crash):
        await run(lab, mortal, later)
    assert await lab.everything("a") == before
    await run(lab, Mortal(lab, 0, done=False), later)
    await run(lab, Mortal(lab, 0, done=False), later + DAY + 1)
    assert await lab.everything("a") == before
    made = await lab.manifests("a")
    assert (made[0].first, made[-1].stop) == (0, 11)
    assert all((one.stop, one.size) == (two.first, two.begin) for one, two in pairwise(made))
    # Full cells are one segment each, and only the last entry is still in the table.
    assert len({GRID.cell(each.first, each.begin) for each in made}) == len(made)
    assert await lab.hot("a") == [10]


async def test_these_are_all_calls_of_a_run(lab: Lab) -> None:
    await prepared(lab)
    mortal = Mortal(lab, 0, done=False)
    await run(lab, mortal, system_clock() + DAY + 1)
    assert mortal.calls == CALLS


async def prepared(lab: Lab) -> list[bytes]:
    """A stream that has something to archive, to merge and to trim."""
    await lab.fill("a", JSON, 6)
    await run(lab, Mortal(lab, 0, done=False), system_clock())
    for i in range(5):
        await lab.append("a", b"%d" % i)
    return await lab.everything("a")
