"""Columns that several checks compare, and conditions on them."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F


def any_of(*conditions: str) -> Column:
    # Null, where something is not known, is no suspicion by itself.
    return reduce(or_, [F.coalesce(F.expr(each), F.lit(False)) for each in conditions])


def moved(offset: Column, size: Column) -> Column:
    """Whether an entry that begins there does not end where its body says."""
    step = F.col("offset") - offset
    wrong = F.when(many(), step < 1).otherwise(step != length())
    return (F.col("size") != size + length()) | wrong


def many() -> Column:
    """Whether an entry may have more than one message, so that its length says less."""
    return F.expr("mode = 'json' AND length IS NOT NULL")


def length() -> Column:
    return F.coalesce("length", F.lit(0))


def chain_text(number: Column) -> Column:
    return F.lpad(F.lower(F.hex(number)), 16, "0")
