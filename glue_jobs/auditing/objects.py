"""Checks of the objects that entries and segments name: they exist, and are not due for removal."""

from __future__ import annotations

from pyspark.sql import DataFrame

from glue_jobs.auditing.problems import BACKUP, UNCLAIM, Problem
from glue_jobs.auditing.snapshot import Snapshot
from glue_jobs.auditing.store_probe import StoreProbe
from tailrace.segments.format import TRAILER_BYTES
from tailrace.store.dynamodb import layout

# Suspects


def suspect_objects(snapshot: Snapshot) -> DataFrame:
    found = named_objects(snapshot).join(snapshot.listing, on="key", how="left")
    return found.where("bytes IS NULL OR bytes != wanted")


def suspect_claims(snapshot: Snapshot) -> DataFrame:
    return named_objects(snapshot).join(snapshot.claims, on="key")


def named_objects(snapshot: Snapshot) -> DataFrame:
    """The objects that entries and segments name, with their expected lengths."""
    bodies = snapshot.entries.where("key IS NOT NULL AND n >= earliest").selectExpr(
        "chain", "path", "n", "key", "length AS wanted"
    )
    whole = f"data_bytes + index_bytes + {TRAILER_BYTES} AS wanted"
    segments = snapshot.manifests.where("first IS NOT NULL")
    return bodies.unionByName(segments.selectExpr("chain", "path", "first AS n", "key", whole))


# Rechecks


async def object_problem(probe: StoreProbe) -> Problem | None:
    expected, name = await probe.expected_length(), await probe.name()
    if expected is None or name is None:
        return None
    length = await probe.length(probe.key)
    if length == expected:
        return None
    state = "is not there" if length is None else f"has {length} bytes, not {expected}"
    return Problem(probe.n, f"the object {probe.key} {state}", BACKUP)


async def claim_problem(probe: StoreProbe) -> Problem | None:
    claimed, expected, name = (
        await probe.has(layout.upload_intent_key(probe.key)),
        await probe.expected_length(),
        await probe.name(),
    )
    if not claimed or expected is None or name is None:
        return None
    return Problem(probe.n, f"the object {probe.key} is claimed as if nothing named it", UNCLAIM)
