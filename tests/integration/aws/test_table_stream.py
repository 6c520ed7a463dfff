"""The handler of the table's stream delivers new entries to cables."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from devtools.processes import ROOT
from tailrace.aws.handlers.table_stream import TableStreamHandler
from tailrace.protocols.action_cable.api_gateway.delivery import (
    Deliveries,
    DeliveryBusy,
    TableStreamRecord,
)

CONTEXT = SimpleNamespace(invoked_function_arn="arn:dispatch")
EVENTS = ROOT / "events" / "dispatch"


def event(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return loaded


class FakeDeliveries:
    """A fake of deliveries: the records that it handled, and the failures to return."""

    def __init__(self) -> None:
        self.records: list[TableStreamRecord] = []
        self.failures: dict[str, Exception] = {}

    async def handle(self, records: Sequence[TableStreamRecord]) -> dict[str, Exception]:
        self.records += records
        return self.failures


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> FakeDeliveries:
    taken = FakeDeliveries()
    monkeypatch.setattr(Deliveries, "handle", lambda _, records: taken.handle(records))
    return taken


@pytest.fixture
def delivering(
    aws_env: str, taken: FakeDeliveries, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TableStreamHandler]:
    assert aws_env
    assert taken.records == []
    monkeypatch.setenv("TAILRACE_TABLE", "unused")
    monkeypatch.setenv("TAILRACE_CABLE_ENDPOINT", "https://a.execute-api.us-east-1.amazonaws.com/b")
    dispatch = TableStreamHandler()
    yield dispatch
    dispatch.close()
    asyncio.set_event_loop(None)


def of(chain: str, *sequences: str) -> list[dict[str, Any]]:
    """Records of appends to a chain."""
    (record,) = event("append")["Records"]
    text = json.dumps(record).replace("C1f00000000000001", f"C{chain}")
    old = record["dynamodb"]["SequenceNumber"]
    return [json.loads(text.replace(old, sequence)) for sequence in sequences]


def test_new_entries_are_delivered(delivering: TableStreamHandler, taken: FakeDeliveries) -> None:
    batch = event("append")
    assert delivering(batch, CONTEXT) == {"batchItemFailures": []}
    assert taken.records == batch["Records"]


def test_only_failed_records_of_a_batch_are_repeated(
    delivering: TableStreamHandler, taken: FakeDeliveries
) -> None:
    records = [*of("01", "101", "102"), *of("02", "103"), *of("01", "104"), *of("03", "105")]
    taken.failures = {"C01": DeliveryBusy("busy"), "C03": DeliveryBusy("busy")}
    assert delivering({"Records": records}, CONTEXT) == {
        "batchItemFailures": [{"itemIdentifier": each} for each in ("101", "102", "104", "105")]
    }
    assert delivering({"Records": of("02", "106")}, CONTEXT) == {"batchItemFailures": []}


def test_a_batch_that_fails_is_repeated(
    delivering: TableStreamHandler, taken: FakeDeliveries
) -> None:
    taken.failures = {"C01": DeliveryBusy("busy")}
    with pytest.raises(Exception, match="All records failed"):
        delivering({"Records": of("01", "101", "102")}, CONTEXT)
