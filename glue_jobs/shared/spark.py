"""The Spark session: Glue's own, or a local one that leaves no files behind."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tailrace.errors import TailraceError

JAVAS = range(17, 21)
"""Glue has Java 17. The Arrow of Spark 3.5 does not run on 21, nor its Hadoop on 24."""

OUR_JAVA = Path(__file__).resolve().parents[2] / ".engines/java/home"
"""Where `make setup` installs Java if the machine has no suitable one."""

EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

LOGGING = Path(__file__).with_name("log4j2.properties")
"""Errors only. A file, since `setLogLevel` would come after Spark's first messages."""


class NoJava(TailraceError):
    code = "NO_JAVA"


def session(
    name: str,
    *,
    local: bool,
    cores: int | None = None,
    memory: str = "2g",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return this process's Spark session; `cores`, `memory` and `settings` are for a local one.

    A running session is returned unchanged. The temporary files of a local one are removed when it
    is stopped and garbage-collected, or when the process exits. Later sessions in the process use
    the same JVM, and so the same memory."""
    builder = _with(SparkSession.builder.appName(name), EVERYWHERE)
    running = SparkContext._active_spark_context is not None  # noqa: SLF001 (in any thread)
    if running or not local:
        return builder.getOrCreate()
    java = java_home()
    directory = Path(tempfile.mkdtemp(prefix="tailrace-spark-"))
    try:
        os.environ["JAVA_HOME"] = str(java)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        # Spark resolves the machine's name before it reads settings, and may log a warning.
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        ours = _on_this_machine(directory, cores or os.cpu_count() or 1, memory)
        spark = _with(builder, ours | dict(settings or {})).getOrCreate()
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    weakref.finalize(spark, shutil.rmtree, directory, ignore_errors=True)
    # If this process is killed, the JVM exits by itself and removes the directory.
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 (there is no other way to Java)
    jvm.java.io.File(str(directory)).deleteOnExit()
    return spark


def _with(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def _on_this_machine(directory: Path, cores: int, memory: str) -> dict[str, str]:
    return {
        "spark.master": f"local[{cores}]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": (directory / "warehouse").as_uri(),
        # Several per core, so that a large one does not delay the others.
        "spark.sql.shuffle.partitions": str(4 * cores),
    }


def java_home() -> Path:
    """Find a suitable Java: the machine's own, or the one that `make setup` installed."""
    rejected = []
    for java in _candidates():
        home, version = _probe_java(java)
        if version in JAVAS:
            return home
        rejected.append(f"{java} is Java {version}" if version else f"{java} does not run")
    raise NoJava(
        f"Spark needs Java {JAVAS[0]} to {JAVAS[-1]} ({'; '.join(rejected) or 'none was found'})."
        " Install one with `make setup`, or set JAVA_HOME to one."
    )


def _candidates() -> list[Path]:
    named, in_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    candidates = [
        *([Path(named, "bin/java")] if named else []),
        *([Path(in_path)] if in_path else []),
        OUR_JAVA / "bin/java",
    ]
    return [java for java in candidates if java.exists()]


def _probe_java(java: Path) -> tuple[Path, int]:
    """Run the command, which may be a wrapper, for its home and version; 0 if it fails."""
    answer = subprocess.run(  # noqa: S603 (the user's own Java)
        [java, "-XshowSettings:properties", "-version"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    home = re.search(r"^ *java\.home = (.+)$", answer, re.MULTILINE)
    version = re.search(r"^ *java\.specification\.version = (?:1\.)?(\d+)$", answer, re.MULTILINE)
    return (Path(home[1]), int(version[1])) if home and version else (java, 0)
