"""A fixture for stories about the tail that a process remembers."""

from __future__ import annotations

import pytest

from tailrace.store.dynamodb.chain import OtherWriters


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that expect no other writers, and so trust a tail for as long as they may."""
    monkeypatch.setattr(OtherWriters, "expected", lambda *_: 0.0)
