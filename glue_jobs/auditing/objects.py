"""Objects in the bucket that entries and segments name: that they are there, and stay."""

from __future__ import annotations

from pyspark.sql import DataFrame

from glue_jobs.auditing.facts import Facts
from glue_jobs.auditing.live import Live
from glue_jobs.auditing.problems import BACKUP, UNCLAIM, Problem
from tailrace.segments.format import TRAILER_BYTES
from tailrace.store.dynamodb import layout

# Where to look


def suspect_objects(known: Facts) -> DataFrame:
    found = named_objects(known).join(known.listing, on="key", how="left")
    return found.where("bytes IS NULL OR bytes != wanted")


def suspect_claims(known: Facts) -> DataFrame:
    return named_objects(known).join(known.claims, on="key")


def named_objects(known: Facts) -> DataFrame:
    """Objects that entries and segments name, each with its length."""
    bodies = known.entries.where("key IS NOT NULL AND n >= earliest").selectExpr(
        "chain", "path", "n", "key", "length AS wanted"
    )
    whole = f"data_bytes + index_bytes + {TRAILER_BYTES} AS wanted"
    segments = known.manifests.where("first IS NOT NULL")
    return bodies.unionByName(segments.selectExpr("chain", "path", "first AS n", "key", whole))


# What is wrong there


async def object_problem(live: Live) -> Problem | None:
    wanted, name = await live.named(), await live.name()
    if wanted is None or name is None:
        return None
    found = await live.length(live.key)
    if found == wanted:
        return None
    is_ = "is not there" if found is None else f"has {found} bytes, not {wanted}"
    return Problem(live.n, f"the object {live.key} {is_}", BACKUP)


async def claim_problem(live: Live) -> Problem | None:
    claimed, wanted, name = (
        await live.has(layout.claim_key(live.key)), await live.named(), await live.name(),
    )  # fmt: skip
    if not claimed or wanted is None or name is None:
        return None
    return Problem(live.n, f"the object {live.key} is claimed as if nothing named it", UNCLAIM)
