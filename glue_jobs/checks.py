"""The checks of the audit: each says where one has to look, as a frame of suspects.

What they compare was read one after the other while the store was in use, so that a suspect is no
problem yet: `glue_jobs.looking` looks at each once more. A check may suspect too much, never too
little.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from glue_jobs import metadata
from glue_jobs.items import Names
from glue_jobs.proving import PROVED
from tailrace.history.segment import TRAILER_BYTES

BLOCK: Final = 1 << 16
"""Slots of a chain that are looked at together: a long chain is spread over many workers."""

SUSPECTS: Final = (
    T.StructType()
    .add("check", T.StringType())
    .add("chain", T.StringType())
    .add("path", T.StringType())
    .add("n", T.LongType())
    .add("key", T.StringType())
)
"""Where to look: a slot, and the key of an object or what else tells one thing from another."""

LEFT: Final = "coalesce(stop <= earliest, false)"
"""Of segments: all of it is before what retention has left."""

MANIFEST: Final = (
    "first", "stop", "key", "data_bytes", "index_bytes", "index_checksum", "begin", "offset", "size"
)  # fmt: skip


class Facts(NamedTuple):
    """What was read of the store."""

    streams: DataFrame
    """A row for each name, with how its chain has to begin, and with what there is of it."""
    chains: DataFrame
    """A row for each chain that has items."""
    entries: DataFrame
    """Those of chains that have a name, with what is needed of it."""
    manifests: DataFrame
    """The same, without what retention is about to remove."""
    edges: DataFrame
    claims: DataFrame
    listing: DataFrame
    proved: DataFrame
    """What segments say; nothing, where they were not read."""


class Check(NamedTuple):
    name: str
    about: str
    suspects: Callable[[Facts], DataFrame]
    warning: bool = False
    """Whether what it finds does no harm, and goes by itself."""


def facts(names: Names, scanned: DataFrame, listing: DataFrame) -> Facts:
    """Its first two are made of all items, and small: worth to be kept."""
    known = streams(names.frame)
    about = known.select(
        "chain", "path", "mode", "base", "base_offset", "base_size", "archived", "let_go",
        "earliest",
    )  # fmt: skip
    about = F.broadcast(about) if names.few else about
    found = chains(scanned.join(about, on="chain", how="left")).persist()
    return Facts(
        known.join(found, on="chain", how="left").persist(),
        found,
        metadata.entries(scanned).join(about, on="chain"),
        metadata.manifests(scanned).join(about, on="chain").where(f"NOT ({LEFT})"),
        metadata.edges(scanned),
        metadata.claims(scanned),
        listing,
        names.frame.sparkSession.createDataFrame([], PROVED),
    )


def chains(scanned: DataFrame) -> DataFrame:
    """Of items with the names of their chains: the first slot that is kept in the table and the
    last, the slot after the last that has data, the tombstone, the same if the chain goes after
    it; how many segments and edges there are, and items of all kinds but edges."""
    entry = "kind = 'C'"

    def of(value: str, condition: str) -> Column:
        return F.expr(f"{value} FILTER (WHERE {condition})")

    # Numbers, and no structures: those would have to be sorted.
    return (
        scanned.where("kind IN ('C', 'S', 'P', 'E')")
        .groupBy("chain")
        .agg(
            of("min(n)", f"{entry} AND (n >= earliest OR n < base)").alias("first"),
            of("max(n)", entry).alias("last"),
            of("max(n + 1)", f"{entry} AND length IS NOT NULL").alias("end"),
            of("max(n)", f"{entry} AND gone").alias("grave"),
            of("max(n)", f"{entry} AND gone AND due IS NOT NULL").alias("leaving"),
            of("count(1)", f"kind = 'S' AND NOT ({LEFT})").alias("segments"),
            of("count(1)", "kind = 'E'").alias("edges"),
            of("count(1)", "kind != 'E'").alias("items"),
        )
    )


def streams(names: DataFrame) -> DataFrame:
    config = F.from_json("config", "base ARRAY<BIGINT>, fork ARRAY<STRING>")
    return names.withColumn("parsed", config).select(
        *("chain", "path", "mode", "base"),
        F.col("parsed.base")[1].alias("base_offset"),
        F.col("parsed.base")[2].alias("base_size"),
        *("archived", "let_go", "exported", "earliest", "forked", "tombstone"),
        _chain(F.col("parsed.fork")[1].cast("long")).alias("parent"),
        F.from_json(F.col("parsed.fork")[4], "ARRAY<ARRAY<BIGINT>>").alias("lineage"),
    )


def suspects(check: Check, known: Facts) -> DataFrame:
    return _told(check.name, check.suspects(known))


# In the table


def _slots(known: Facts) -> DataFrame:
    linked = links(known.entries.where("n IS NULL OR n >= earliest"))
    apart = F.expr("n = before.n + 1") & _moved(F.col("before.offset"), F.col("before.size"))
    hole = "n > greatest(archived, earliest)"
    wrong = F.coalesce(apart, F.lit(False)) | _any(
        "n IS NULL OR offset IS NULL OR size IS NULL OR at IS NULL",
        "length IS NULL AND end IS NULL AND NOT gone",
        "before.gone",
        "before.end IS NOT NULL AND NOT gone",
        "at < before.at",
        f"n != before.n + 1 AND {hole}",
    )
    # A chain has one slot that none is before, or there is a hole where two blocks meet.
    begins = F.expr("n IS NOT NULL AND before IS NULL")
    flagged = linked.select(
        *("chain", "path", "n"),
        F.expr("if(n IS NULL, s, NULL)").alias("key"),
        begins.alias("begins"),
        F.expr(hole).alias("hole"),
        wrong.alias("wrong"),
    ).where("begins OR wrong")
    other = F.lag("n").over(Window.partitionBy("chain", "path", "begins").orderBy("n"))
    return flagged.withColumn("other", other).where(
        "wrong OR (begins AND hole AND other IS NOT NULL)"
    )


def links(entries: DataFrame) -> DataFrame:
    """Each entry with the one before it: of its block, or the last slot of the block before."""
    own, following = (F.expr(f"(n + {i}) div {BLOCK}") for i in (0, 1))
    copies = entries.withColumn("block", F.explode(F.array_distinct(F.array(own, following))))
    window = Window.partitionBy("chain", "path", "block").orderBy("n")
    before = F.lag(F.struct("n", "offset", "size", "at", "end", "gone")).over(window)
    return copies.withColumn("before", before).where(F.col("block").eqNullSafe(own))


def _beginnings(known: Facts) -> DataFrame:
    kept = "greatest(archived, earliest)"
    return known.streams.withColumn("n", F.col("first")).where(
        _any("n < base", "n < let_go", f"n > {kept}", f"n IS NULL AND {kept} > base")
    )


def _pointers(known: Facts) -> DataFrame:
    return known.streams.where(
        _any("earliest < base", "let_go < base", "archived < let_go", "archived < exported")
    )


def _tombstones(known: Facts) -> DataFrame:
    return known.streams.withColumn("n", F.coalesce("tombstone", "grave")).where(
        "n IS NOT NULL AND (tombstone IS NULL OR grave IS NULL OR grave != tombstone)"
    )


# In segments


def _manifests(known: Facts) -> DataFrame:
    window = Window.partitionBy("chain", "path").orderBy("first")
    placed = (
        known.manifests.withColumn("following", F.lead("first").over(window))
        .withColumn("before", F.lag(F.struct("stop", "offset", "size")).over(window))
        .withColumn("step", F.expr(f"offset - {_start('offset')}"))
        .withColumn("many", F.col("mode") == "json")
    )
    wrong = placed.where(
        _any(
            *(f"{column} IS NULL" for column in MANIFEST),
            "stop <= first",
            "data_bytes != size - begin + if(many, stop - first - 1, 0)",
            "before IS NULL AND (first < base OR first > greatest(base, earliest))",
            "first != before.stop",
            f"begin != {_start('size')}",
            "if(many, step < stop - first, step != size - begin)",
            "following IS NULL AND stop != archived",
        )
    )
    without = known.streams.where(
        "archived > greatest(base, earliest) AND coalesce(segments, 0) = 0"
    )
    return wrong.select("chain", "path").unionByName(without.select("chain", "path"))


def _start(what: str) -> str:
    """Where a segment has to begin, as far as that is known."""
    return f"coalesce(before.{what}, if(first = base, base_{what}, NULL))"


def _seams(known: Facts) -> DataFrame:
    """Entries of which a name or a segment says where they begin, or end."""
    place = "n", "from_offset", "from_size", "to_offset", "to_size"
    marks = known.streams.selectExpr(
        *("chain", "base AS n", "base_offset AS from_offset", "base_size AS from_size"),
        *("CAST(NULL AS BIGINT) AS to_offset", "CAST(NULL AS BIGINT) AS to_size"),
    ).unionByName(
        known.manifests.selectExpr(
            "chain",
            "stack(3, first, NULL, begin, NULL, NULL,"
            " stop, offset, size, NULL, NULL,"
            f" stop - 1, NULL, NULL, offset, size) AS ({', '.join(place)})",
        )
    )
    overlap = known.entries.where("n >= earliest AND (n <= archived OR n = base)")
    met = overlap.join(marks, on=["chain", "n"])
    step = F.when(_many(), F.lit(1)).otherwise(_length())
    begin = F.coalesce("from_offset", F.col("offset") - step)
    ends = F.expr("to_offset != offset OR to_size != size")
    apart = met.where(ends | _moved(begin, F.col("from_size")))
    return apart.select("chain", "path", "n").unionByName(_differing(known))


def _differing(known: Facts) -> DataFrame:
    """Entries that are not what their segments have; the first of each segment, since to look at
    one is to read all of it."""
    hot = known.entries.where("n >= earliest AND n < archived").drop("key", "path")
    both = hot.alias("hot").join(known.proved.where("NOT wrong").alias("cold"), on=["chain", "n"])
    differ = _any(*(f"hot.{each} != cold.{each}" for each in ("offset", "size", "at", "checksum")))
    first = both.where(differ).groupBy("chain", "path", "key").agg(F.min("n").alias("n"))
    return first.select("chain", "path", "n")


def _segments(known: Facts) -> DataFrame:
    return known.proved.where("wrong")


def _objects(known: Facts) -> DataFrame:
    found = named_objects(known).join(known.listing, on="key", how="left")
    return found.where("bytes IS NULL OR bytes != wanted")


def _claims(known: Facts) -> DataFrame:
    return named_objects(known).join(known.claims, on="key")


def named_objects(known: Facts) -> DataFrame:
    """Objects that entries and segments name, each with its length."""
    bodies = known.entries.where("key IS NOT NULL AND n >= earliest").selectExpr(
        "chain", "path", "n", "key", "length AS wanted"
    )
    whole = f"data_bytes + index_bytes + {TRAILER_BYTES} AS wanted"
    segments = known.manifests.where("first IS NOT NULL")
    return bodies.unionByName(segments.selectExpr("chain", "path", "first AS n", "key", whole))


# Between streams


def _forks(known: Facts) -> DataFrame:
    """Forks, and for each chain that they read through where it has to begin and to end."""
    forks = known.streams.where("lineage IS NOT NULL")
    loose = forks.where("base != coalesce(get(lineage, size(lineage) - 1)[1], 0)").select(
        *("chain", "path"), F.col("base").alias("n"), F.lit(None).cast("string").alias("key")
    )
    through = forks.select("chain", "path", "lineage", F.posexplode("lineage")).select(
        *("chain", "path"),
        F.expr("col[1]").alias("n"),
        _chain(F.expr("col[0]")).alias("key"),
        F.expr("coalesce(get(lineage, pos - 1)[1], 0)").alias("start"),
    )
    sources = known.streams.selectExpr(
        "chain AS key", "base", "greatest(archived, coalesce(end, 0)) AS end"
    )
    apart = through.join(sources, on="key", how="left").where(
        "base IS NULL OR base != start OR end < n"
    )
    return loose.unionByName(apart.select("chain", "path", "n", "key"))


def _edges(known: Facts) -> DataFrame:
    forks = known.streams.where("parent IS NOT NULL").select(
        "path", "parent", F.col("chain").alias("fork")
    )
    pair = ["parent", "fork"]
    without_edge = forks.join(known.edges, on=pair, how="left_anti").selectExpr(
        "fork AS chain", "path", "parent AS key"
    )
    without_fork = known.edges.join(forks, on=pair, how="left_anti").selectExpr(
        "parent AS chain", "CAST(NULL AS STRING) AS path", "fork AS key"
    )
    miscounted = known.streams.where("forked != coalesce(edges, 0)")
    nothing = F.lit(None).cast("string")
    return without_edge.unionByName(without_fork).unionByName(
        miscounted.select("chain", "path", nothing.alias("key"))
    )


def _twins(known: Facts) -> DataFrame:
    paths = known.streams.groupBy("chain").agg(
        F.min("path").alias("path"), F.max("path").alias("key")
    )
    return paths.where("path != key")


def _orphans(known: Facts) -> DataFrame:
    nameless = known.chains.join(known.streams, on="chain", how="left_anti")
    return nameless.where("items > 0 AND (leaving IS NULL OR leaving != last)")


CHECKS: Final = (
    Check("slots", "Slots in the table follow each other, in order and to the byte.", _slots),
    Check("beginnings", "Each chain begins, and goes on, where its name says.", _beginnings),
    Check("pointers", "What names say of how far jobs have got is in order.", _pointers),
    Check("tombstones", "Only deleted streams end with a tombstone, and all do.", _tombstones),
    Check(
        "manifests", "Segments of a chain follow each other, without hole or overlap.", _manifests
    ),
    Check("seams", "Slots that are in the table and in a segment are the same.", _seams),
    Check("objects", "What is stored in the bucket is there, in its whole length.", _objects),
    Check("segments", "Each segment is undamaged, and says what its manifest says.", _segments),
    Check("claims", "Nothing that is in use is marked to be swept.", _claims),
    Check("forks", "All that a fork reads through is there.", _forks),
    Check("edges", "Streams know their forks, and forks their sources.", _edges),
    Check("twins", "No two names stand for one chain.", _twins),
    Check("orphans", "Every chain has a name, or is on its way out.", _orphans, warning=True),
)
"""In the order in which they are told."""


# Columns


def _told(check: str, found: DataFrame) -> DataFrame:
    """The columns of `SUSPECTS`, whatever a check leaves out."""
    columns = [
        F.lit(check).alias(name)
        if name == "check"
        else (F.col(name) if name in found.columns else F.lit(None)).cast(kind).alias(name)
        for name, kind in ((field.name, field.dataType) for field in SUSPECTS.fields)
    ]
    return found.select(*columns)


def _any(*conditions: str) -> Column:
    # Null, where something is not known, is no suspicion by itself.
    return reduce(or_, [F.coalesce(F.expr(each), F.lit(False)) for each in conditions])


def _moved(offset: Column, size: Column) -> Column:
    """Whether an entry that begins there does not end where its body says."""
    step = F.col("offset") - offset
    wrong = F.when(_many(), step < 1).otherwise(step != _length())
    return (F.col("size") != size + _length()) | wrong


def _many() -> Column:
    """Whether an entry may have more than one message, so that its length says less."""
    return F.expr("mode = 'json' AND length IS NOT NULL")


def _length() -> Column:
    return F.coalesce("length", F.lit(0))


def _chain(number: Column) -> Column:
    return F.lpad(F.lower(F.hex(number)), 16, "0")
