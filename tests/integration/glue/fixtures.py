"""Spark for the tests of the jobs: one JVM, since all of them run in one process."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from devtools.engines.ministack import Engine
from devtools.processes import ROOT
from glue_jobs.shared.spark import session
from tests.integration.glue.lab import Lab

# Two of pyspark's own: it leaves its sockets to the garbage collector, and asks distutils.
UNAVOIDABLE: Final = (
    "ignore:unclosed <socket.*'127.0.0.1':ResourceWarning",
    "ignore:distutils Version classes are deprecated:DeprecationWarning",
)

NO_JAVA: Final = ROOT / ".engines/java/missing"

# Tests are over before better machine code has paid off, and what is checked here is no foreign
# code: together these are half of the JVM's CPU time.
JAVA: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)

FEW: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.python.daemon.module": "tests.support.spark_daemon",
}


def mark_tests(items: Sequence[pytest.Item], folder: Path) -> None:
    """Tests of a folder need Java, and pyspark's warnings are not theirs."""
    marks = [pytest.mark.filterwarnings(each) for each in UNAVOIDABLE]
    if NO_JAVA.exists():
        marks.append(pytest.mark.skip(reason=f"without Java: {NO_JAVA.read_text().strip()}"))
    for item in items:
        if item.path.is_relative_to(folder):
            for mark in marks:
                item.add_marker(mark)


@pytest.fixture(scope="session")
def spark(aws: Engine) -> Iterator[SparkSession]:
    """Tests keep apart by the names of what they write; none stops it."""
    with ExitStack() as started:
        # The JVM, and so Spark's Python workers, keep the environment in which it starts.
        with _environment(aws) as patch:
            # Spark's Python workers look up the functions of test modules by name.
            patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
            patch.setenv("SPARK_SUBMIT_OPTS", JAVA)
            shared = started.enter_context(session("tests", local=True, cores=2, settings=FEW))
        yield shared


@pytest.fixture(scope="module", autouse=True)
def environment(aws: Engine) -> Iterator[None]:
    """Let the driver find the engine, for no longer than a module of these tests runs."""
    with _environment(aws):
        yield


@contextmanager
def _environment(aws: Engine) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in aws.env.items():
            patch.setenv(name, value)
        yield patch


@pytest.fixture
async def lab(spark: SparkSession) -> AsyncIterator[Lab]:
    """A table and a bucket of the test's own, with a store over them."""
    async with Lab.over(spark) as made:
        yield made
