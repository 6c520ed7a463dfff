"""The checks of the audit: each returns suspects, and rechecks one of them.

The audit reads the store piece by piece while it is in use, so a suspect is not a problem yet:
`glue_jobs.auditing.recheck` checks each again. A check may return false suspects, but misses none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from glue_jobs.auditing import entries, objects, segments, streams
from glue_jobs.auditing.problems import Problem
from glue_jobs.auditing.snapshot import Snapshot
from glue_jobs.auditing.store_probe import StoreProbe

SUSPECTS: Final = (
    T.StructType()
    .add("check", T.StringType())
    .add("chain", T.StringType())
    .add("path", T.StringType())
    .add("n", T.LongType())
    .add("key", T.StringType())
)
"""A suspect: a slot, and the key of an object or another item."""

Recheck = Callable[[StoreProbe], Awaitable[Problem | None]]


class Check(NamedTuple):
    name: str
    about: str
    suspects: Callable[[Snapshot], DataFrame]
    recheck: Recheck
    warning: bool = False
    """Whether its problems are harmless and are removed by the sweep."""


CHECKS: Final = (
    Check(
        "slots",
        "Slots in the table follow each other, in order and to the byte.",
        entries.suspect_slots,
        entries.slot_problem,
    ),
    Check(
        "beginnings",
        "Each chain begins, and goes on, where its name says.",
        entries.suspect_beginnings,
        entries.beginning_problem,
    ),
    Check(
        "pointers",
        "What names say of how far jobs have got is in order.",
        entries.suspect_pointers,
        entries.pointer_problem,
    ),
    Check(
        "tombstones",
        "Only deleted streams end with a tombstone, and all do.",
        entries.suspect_tombstones,
        entries.tombstone_problem,
    ),
    Check(
        "manifests",
        "Segments of a chain follow each other, without hole or overlap.",
        segments.suspect_manifests,
        segments.manifest_problem,
    ),
    Check(
        "seams",
        "Slots that are in the table and in a segment are the same.",
        segments.suspect_seams,
        segments.seam_problem,
    ),
    Check(
        "objects",
        "What is stored in the bucket is there, in its whole length.",
        objects.suspect_objects,
        objects.object_problem,
    ),
    Check(
        "segments",
        "Each segment is undamaged, and says what its manifest says.",
        segments.suspect_segments,
        segments.segment_problem,
    ),
    Check(
        "claims",
        "Nothing that is in use is marked to be swept.",
        objects.suspect_claims,
        objects.claim_problem,
    ),
    Check(
        "forks",
        "All that a fork reads through is there.",
        streams.suspect_forks,
        streams.fork_problem,
    ),
    Check(
        "edges",
        "Streams know their forks, and forks their sources.",
        streams.suspect_edges,
        streams.edge_problem,
    ),
    Check(
        "twins", "No two names stand for one chain.", streams.suspect_twins, streams.twin_problem
    ),
    Check(
        "orphans",
        "Every chain has a name, or is on its way out.",
        streams.suspect_orphans,
        streams.orphan_problem,
        warning=True,
    ),
)
"""In the order of the report."""


def suspects(check: Check, snapshot: Snapshot) -> DataFrame:
    return _select_columns(check.name, check.suspects(snapshot))


def _select_columns(check: str, suspects: DataFrame) -> DataFrame:
    """Select the columns of `SUSPECTS`, null where a check has none."""
    columns = [
        F.lit(check).alias(name)
        if name == "check"
        else (F.col(name) if name in suspects.columns else F.lit(None)).cast(kind).alias(name)
        for name, kind in ((field.name, field.dataType) for field in SUSPECTS.fields)
    ]
    return suspects.select(*columns)
