"""Spark, on Glue as it is given and on this machine as a guest that leaves nothing behind."""

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
"""Where set-up puts one when the machine has none that fits."""

EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

LOGGING = Path(__file__).with_name("log4j2.properties")
"""Errors only. A file, and not `setLogLevel`: that comes after Spark has said hello."""


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
    """The Spark of this process; `cores`, `memory` and `settings` are for a local one.

    One that runs already is taken as it is. What a local one writes for itself is removed when it
    is stopped and let go, or when the process ends; the next one in the process has the same JVM,
    and so the same memory."""
    builder = _with(SparkSession.builder.appName(name), EVERYWHERE)
    running = SparkContext._active_spark_context is not None  # noqa: SLF001 (in any thread)
    if running or not local:
        return builder.getOrCreate()
    java = java_home()
    directory = Path(tempfile.mkdtemp(prefix="tailrace-spark-"))
    try:
        os.environ["JAVA_HOME"] = str(java)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        # Before any setting is read, Spark looks up the machine's name, and warns of what it finds.
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        ours = _on_this_machine(directory, cores or os.cpu_count() or 1, memory)
        spark = _with(builder, ours | dict(settings or {})).getOrCreate()
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    weakref.finalize(spark, shutil.rmtree, directory, ignore_errors=True)
    # After a kill -9 of this process: the JVM ends by itself then, and has emptied it.
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
        # Several to a core: a large one then does not keep the others waiting.
        "spark.sql.shuffle.partitions": str(4 * cores),
    }


def java_home() -> Path:
    """The machine's own Java when it fits, else the one that set-up brought."""
    found = []
    for java in _candidates():
        home, version = _ask(java)
        if version in JAVAS:
            return home
        found.append(f"{java} is Java {version}" if version else f"{java} does not run")
    raise NoJava(
        f"Spark needs Java {JAVAS[0]} to {JAVAS[-1]} ({'; '.join(found) or 'there is none'})."
        " `make setup` brings one; JAVA_HOME names one of your own."
    )


def _candidates() -> list[Path]:
    named, in_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    candidates = [
        *([Path(named, "bin/java")] if named else []),
        *([Path(in_path)] if in_path else []),
        OUR_JAVA / "bin/java",
    ]
    return [java for java in candidates if java.exists()]


def _ask(java: Path) -> tuple[Path, int]:
    """Its home and version, 0 when it does not run; asked, since the command can be a stand-in."""
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
