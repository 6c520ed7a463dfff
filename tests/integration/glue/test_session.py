"""Spark on this machine: quiet, on loopback only, and gone without a trace when it is stopped."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from glue_jobs.shared import spark as glue_spark
from glue_jobs.shared.spark import JAVAS, NoJava, java_home


def interpreters(batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for batch in batches:
        yield pd.DataFrame({"python": [sys.executable] * len(batch)})


def test_workers_run_this_python_and_know_the_functions_of_the_tests(spark: SparkSession) -> None:
    found = spark.range(3).mapInPandas(interpreters, "python string").distinct().collect()
    assert [row.python for row in found] == [sys.executable]


def test_bytes_come_back_as_they_were(spark: SparkSession) -> None:
    bodies = [bytes(range(256)), b"", "\u2028é\0".encode()]
    frame = spark.createDataFrame(list(enumerate(bodies)), "n int, body binary")
    assert [bytes(row.body) for row in frame.sort("n").collect()] == bodies
    through_arrow: Any = frame.sort("n").toPandas()
    assert through_arrow["body"].map(bytes).to_list() == bodies


def test_times_are_utc_wherever_the_machine_is(spark: SparkSession) -> None:
    moment = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    frame = spark.createDataFrame([(int(moment.timestamp()),)], "at long")
    shown = frame.select(F.col("at").cast("timestamp").cast("string").alias("shown")).collect()
    assert shown[0].shown == "2026-03-29 01:30:00"


def test_a_running_session_is_reused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ThreadPoolExecutor(1) as elsewhere:
        again = elsewhere.submit(glue_spark.session, "again", local=True, cores=7).result()
    assert again is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's table of sockets")
def test_spark_listens_on_loopback_only(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    process = Path("/proc", str(jvm.ProcessHandle.current().pid()))
    sockets = {str(each.readlink()) for each in (process / "fd").iterdir()}
    lines = [line.split() for table in ("tcp", "tcp6") for line in table_of(process, table)]
    listening = {
        line[1].partition(":")[0]
        for line in lines
        if line[3] == "0A" and f"socket:[{line[9]}]" in sockets
    }
    assert listening
    assert listening <= {"0100007F", "0000000000000000FFFF00000100007F"}, listening


def table_of(process: Path, name: str) -> list[str]:
    return (process / "net" / name).read_text().splitlines()[1:]


def test_java_is_found_without_java_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    home = java_home()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


def test_a_java_that_does_not_fit_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fits = java_home()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "new", JAVAS.stop)))
    monkeypatch.setenv("PATH", f"{fits / 'bin'}")
    assert java_home() == fits


def test_without_java_the_error_names_what_there_is_and_the_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old, broken = fake_java(tmp_path / "old", 8), tmp_path / "broken"
    broken.mkdir()
    (broken / "java").write_text("#!/bin/sh\nexit 1\n")
    (broken / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(broken))
    monkeypatch.setattr(glue_spark, "OUR_JAVA", tmp_path / "none")
    with pytest.raises(NoJava) as refused:
        java_home()
    assert str(refused.value) == (
        f"Spark needs Java 17 to 20 ({old}/bin/java is Java 8; {broken}/java does not run)."
        " Install one with `make setup`, or set JAVA_HOME to one."
    )


def fake_java(home: Path, version: int) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    spelled = f"1.{version}" if version < 9 else str(version)
    java.write_text(
        "#!/bin/sh\n"
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.specification.version = {spelled}' >&2\n"
    )
    java.chmod(0o755)
    return home
