"""Rechecks suspects: returns the problem of each that is still wrong, and its fix.

A problem must be found twice in a row, since a transaction may commit between two reads of a check.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from glue_jobs.auditing.checks import CHECKS, Recheck
from glue_jobs.auditing.problems import RESTORE, UNREACHED, Problem
from glue_jobs.auditing.store_probe import TRIES, StoreProbe
from glue_jobs.shared.workers import Backend, Row, map_rows
from tailrace.settings import Settings

AT_ONCE: Final = 8
"""Suspects that a worker rechecks concurrently."""

PAUSE: Final = 0.1
"""Seconds between two rechecks."""

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


def recheck_suspects(suspects: DataFrame, settings: Settings) -> DataFrame:
    """Return the problems of suspects that are still wrong; `other` is as in `StoreProbe`."""

    async def recheck(backend: Backend, row: Row) -> Sequence[Row]:
        if CHAIN.fullmatch(row["chain"]):
            problem = await _recheck_twice(
                RECHECKS[row["check"]], StoreProbe(backend, settings, row)
            )
        else:
            problem = Problem(None, f"'{row['chain']}' is no chain", UNREACHED)
        if problem is None:
            return []
        stream = row["path"] or row["chain"]
        return [{"check": row["check"], "stream": stream, **problem._asdict()}]

    spread = suspects.repartition("check", "chain", "n", "key")
    return map_rows(spread, settings, PROBLEMS, recheck, AT_ONCE).distinct()


async def _recheck_twice(recheck: Recheck, probe: StoreProbe) -> Problem | None:
    last = None
    for _ in range(TRIES):
        try:
            problem = await recheck(probe)
        except (LookupError, ValueError) as error:
            problem = Problem(probe.n, f"an item of it cannot be read ({error!r})", RESTORE)
        if problem is None or problem == last:
            return problem
        last = problem
        await asyncio.sleep(PAUSE)
    return None
