"""Fixtures for tests of the DynamoDB store: quick botocore sessions and patient calls."""

from __future__ import annotations

from functools import cache
from typing import Any

import botocore.session
import pytest
from botocore.loaders import create_loader

from tailrace.aws.client import pool, service_access

SAFETY_SECONDS = 120.0
"""A safety net: on a busy machine an engine may take seconds to answer."""


@cache
def _shared() -> Any:
    return create_loader()


@pytest.fixture(autouse=True)
def shared_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    """One reader of botocore's data for all tests: each would parse megabytes of JSON again."""
    monkeypatch.setattr(botocore.session, "create_loader", lambda *_: _shared())


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call is given up, and so repeated, only because the machine is busy."""
    for module in (service_access, pool):
        monkeypatch.setattr(module, "AWS_CONNECT_SECONDS", SAFETY_SECONDS)
    monkeypatch.setattr(service_access, "READ_SECONDS", SAFETY_SECONDS)
    monkeypatch.setattr(pool, "AWS_CALL_SECONDS", SAFETY_SECONDS)
