"""Fixtures of the tests of the jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.glue.fixtures import environment, lab, mark_tests, spark
from tests.support.dynamo import patience, shared_loader

__all__ = ["environment", "lab", "patience", "shared_loader", "spark"]

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_tests(items, HERE)
