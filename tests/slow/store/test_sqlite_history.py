"""More histories of the embedded store than tests/unit has time for."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from tests.unit.store.test_sqlite_history import HISTORIES, same_before_and_after


@settings(max_examples=400, deadline=None)
@given(*HISTORIES)
def test_every_reader_gets_the_same_before_and_after(
    mode: str, steps: list[tuple[str, int, Any]], messages: int, index_slots: int
) -> None:
    same_before_and_after(mode, steps, messages, index_slots)
