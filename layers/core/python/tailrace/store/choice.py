"""Which store the settings ask for; only that one is imported."""

from __future__ import annotations

from tailrace.clock import Clock
from tailrace.settings import Settings
from tailrace.store.base import Store


def choose_store(settings: Settings, clock: Clock) -> Store:
    if settings.store == "dynamodb":
        from tailrace.store.dynamo.store import DynamoStore

        return DynamoStore(settings, clock)
    from tailrace.store.sqlite import SqliteStore

    return SqliteStore(settings, clock)
