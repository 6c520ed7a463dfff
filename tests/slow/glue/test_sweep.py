"""The sweep beside a second one, and compaction after it."""

from __future__ import annotations

import asyncio

from tailrace.clock import system_clock
from tailrace.log.append import Append
from tests.integration.glue.lab import DAY, TEXT, Lab
from tests.integration.glue.test_sweep import (
    LATER,
    counts,
    litter,
    nothing_unnamed,
    read,
    swept,
)


async def test_two_concurrent_runs_remove_what_one_would(lab: Lab) -> None:
    now = system_clock() + LATER
    await litter(lab, now)
    for later in (now, now + DAY + 60_000):
        both = await asyncio.gather(*(swept(lab, later, "--dry-run", "false") for _ in range(2)))
    kinds = counts(both[0]).keys() | counts(both[1]).keys()
    assert kinds == {"deleted", "claims", "orphan chains"}
    await nothing_unnamed(lab)


async def test_compaction_continues_after_a_sweep(lab: Lab) -> None:
    now = system_clock() + LATER
    await litter(lab, now)
    await swept(lab, now, "--dry-run", "false")
    for i in range(5):
        await lab.streams.append("old/few", Append(b"%d-more" % i, TEXT))
    expected = await read(lab, "old/few")
    done = await lab.compact("--segment-max-messages", "4", later=LATER)
    assert (done.streams, done.refused) == (1, [])
    assert (await lab.manifests("old/few"))[0].first == 2
    assert await read(lab, "old/few") == expected
