"""Columns and conditions that several checks share."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F


def any_of(*conditions: str) -> Column:
    # Null means unknown, which is not suspicious.
    return reduce(or_, [F.coalesce(F.expr(each), F.lit(False)) for each in conditions])


def moved(offset: Column, size: Column) -> Column:
    """Whether an entry that begins at `offset` and `size` does not end where its body implies."""
    step = F.col("offset") - offset
    wrong = F.when(many(), step < 1).otherwise(step != length())
    differs = step != F.coalesce("steps", step)
    return (F.col("size") != size + length()) | wrong | differs


def many() -> Column:
    """Whether an entry may have several messages, so that its length does not imply its offset."""
    return F.expr("mode = 'json' AND length IS NOT NULL")


def length() -> Column:
    return F.coalesce("length", F.lit(0))


def chain_text(number: Column) -> Column:
    return F.lpad(F.lower(F.hex(number)), 16, "0")
