"""The second look of each check: what is wrong, if it still is, and what to do about it.

What is wrong has to be seen twice in a row and be the same: between two reads of one look a
transaction may have come.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from glue_jobs.auditing.checks import CHECKS, Recheck
from glue_jobs.auditing.live import TRIES, Live
from glue_jobs.auditing.problems import RESTORE, UNREACHED, Problem
from glue_jobs.shared.workers import Backend, Row, for_each
from tailrace.settings import Settings

AT_ONCE: Final = 8
"""Looks of a worker that are under way at once."""

PAUSE: Final = 0.1
"""Seconds between two looks."""

CHAIN: Final = re.compile("[0-9a-f]{16}")

PROBLEMS: Final = (
    T.StructType()
    .add("check", T.StringType())
    .add("stream", T.StringType())
    .add("slot", T.LongType())
    .add("what", T.StringType())
    .add("fix", T.StringType())
)

RECHECKS: Final[Mapping[str, Recheck]] = {check.name: check.recheck for check in CHECKS}


def problems(suspects: DataFrame, settings: Settings) -> DataFrame:
    """Those of the suspects that are still wrong; `other` is as in `Live`."""

    async def recheck(backend: Backend, row: Row) -> Sequence[Row]:
        if CHAIN.fullmatch(row["chain"]):
            found = await _twice(RECHECKS[row["check"]], Live(backend, settings, row))
        else:
            found = Problem(None, f"'{row['chain']}' is no chain", UNREACHED)
        if found is None:
            return []
        stream = row["path"] or row["chain"]
        return [{"check": row["check"], "stream": stream, **found._asdict()}]

    spread = suspects.repartition("check", "chain", "n", "key")
    return for_each(spread, settings, PROBLEMS, recheck, AT_ONCE).distinct()


async def _twice(recheck: Recheck, live: Live) -> Problem | None:
    last = None
    for _ in range(TRIES):
        try:
            found = await recheck(live)
        except (LookupError, ValueError) as error:
            found = Problem(live.n, f"an item of it cannot be read ({error!r})", RESTORE)
        if found is None or found == last:
            return found
        last = found
        await asyncio.sleep(PAUSE)
    return None
