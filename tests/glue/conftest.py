"""Spark for the tests of the jobs: one JVM, since all of them run in one process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from glue_jobs.spark import session

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# Two of pyspark's own: it leaves its sockets to the garbage collector, and asks distutils.
UNAVOIDABLE = (
    "ignore:unclosed <socket.*'127.0.0.1':ResourceWarning",
    "ignore:distutils Version classes are deprecated:DeprecationWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            for each in UNAVOIDABLE:
                item.add_marker(pytest.mark.filterwarnings(each))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Tests keep apart by the names of what they write; none stops it."""
    with pytest.MonkeyPatch.context() as patch:
        # Spark's Python workers look up the functions of test modules by name.
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        few = {"spark.sql.shuffle.partitions": "2"}
        with session("tests", local=True, cores=2, settings=few) as shared:
            yield shared
