"""Spark in a process of its own: quiet, and gone without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path


def test_a_session_says_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    job = """
        import os, tempfile
        from glue_jobs.shared.spark import session

        with session("test", local=True, cores=1, memory="512m") as spark:
            spark.sql("CREATE TABLE kept USING parquet AS SELECT 1 AS one")
            assert spark.table("kept").count() == 1
            print(os.listdir(tempfile.gettempdir()))
    """
    there, temporary = tmp_path / "there", tmp_path / "temporary"
    there.mkdir()
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(job)],
        env={**os.environ, "TMPDIR": str(temporary)},
        cwd=there,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    # Of Java itself, where Spark 4 asks for that module; there is no way to switch it off.
    said = done.stderr.replace("WARNING: Using incubator modules: jdk.incubator.vector\n", "")
    assert (done.returncode, said) == (0, "")
    assert done.stdout.startswith("['tailrace-spark-")
    assert list(there.iterdir()) == list(temporary.iterdir()) == []


def test_a_killed_session_leaves_nothing(tmp_path: Path) -> None:
    job = """
        import os, signal
        from glue_jobs.shared.spark import session

        with session("test", local=True, cores=1, memory="512m") as spark:
            spark.range(10).repartition(2).cache().count()
            os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(job)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        timeout=600,
    )
    assert killed.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 300
    while list(tmp_path.iterdir()):
        assert time.monotonic() < deadline, list(tmp_path.rglob("*"))
        time.sleep(0.1)
