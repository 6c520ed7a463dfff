"""Names of tests: those that run side by side are told apart by nothing else."""

from __future__ import annotations

import dataclasses

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Schemathesis makes many tests of one function, but leaves them one name."""
    for item in items:
        _, bracket, operation = item.name.partition("[")
        if bracket and item._id.params is None:
            item._id = dataclasses.replace(item._id, params=operation.removesuffix("]"))
