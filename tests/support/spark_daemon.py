"""The process that Spark forks its Python workers from, made quick for many small tasks.

Spark 3.5 lets a worker forget before each task what it knows of the folders that it imports from.
For pyspark, which is a zip file, finding that out again takes longer than most tasks of the tests.
Workers also have the patience of `tests.support.dynamo`.
"""

from __future__ import annotations

import zipimport
from typing import Any

import pandas  # noqa: F401 (every worker has it from the start)
import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import glue_jobs.shared.workers  # noqa: F401
from tailrace.aws.client import pool, service_access
from tests.support.dynamo import SAFETY_SECONDS


def _keep(_: zipimport.zipimporter) -> None:
    """Do nothing: the content of the file does not change."""


def _prepare() -> None:
    zips: Any = zipimport.zipimporter
    zips.invalidate_caches = _keep
    modules: tuple[Any, ...] = service_access, pool
    for module in modules:
        module.AWS_CONNECT_SECONDS = module.READ_SECONDS = module.AWS_CALL_SECONDS = SAFETY_SECONDS


if __name__ == "__main__":
    _prepare()
    manager()  # type: ignore[no-untyped-call]
