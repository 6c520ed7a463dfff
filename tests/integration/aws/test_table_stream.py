"""The handler of the table's stream purges deleted streams, and delivers new entries to cables."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from devtools.processes import ROOT
from tailrace.aws.handlers.table_stream import TableStreamHandler, deleted_tag
from tailrace.protocols.action_cable.api_gateway.delivery import (
    Deliveries,
    DeliveryBusy,
    TableStreamRecord,
)

EVENTS = ROOT / "events" / "dispatch"


def event(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return loaded


@pytest.fixture
def dispatch(distribution: str, monkeypatch: pytest.MonkeyPatch) -> TableStreamHandler:
    monkeypatch.setenv("TAILRACE_DISTRIBUTION", distribution)
    return TableStreamHandler()


def purged(cloudfront: Any, distribution: str) -> list[list[str]]:
    listed = cloudfront.list_invalidations(DistributionId=distribution)["InvalidationList"]
    return [
        cloudfront.get_invalidation(DistributionId=distribution, Id=each["Id"])["Invalidation"][
            "InvalidationBatch"
        ]["Paths"]["Items"]
        for each in listed.get("Items", [])
    ]


def test_a_deletion_purges_by_the_streams_tag(
    dispatch: TableStreamHandler,
    distribution: str,
    cloudfront: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert dispatch(event("delete")) == {"batchItemFailures": []}
    assert purged(cloudfront, distribution) == [["#s-1f00000000000001"]]
    assert '"purged_streams_total":[1.0]' in capsys.readouterr().out.replace(" ", "")


def test_an_append_purges_nothing(
    dispatch: TableStreamHandler, distribution: str, cloudfront: Any
) -> None:
    dispatch(event("append"))
    assert purged(cloudfront, distribution) == []


def test_many_deletions_are_one_purge(
    dispatch: TableStreamHandler, distribution: str, cloudfront: Any
) -> None:
    batch = event("delete")
    other = json.loads(json.dumps(batch["Records"][0]).replace("C1f0", "C2f0"))
    batch["Records"] += [other, *event("append")["Records"]]
    dispatch(batch)
    assert purged(cloudfront, distribution) == [["#s-1f00000000000001", "#s-2f00000000000001"]]


def test_a_purge_that_fails_fails_the_batch(
    dispatch: TableStreamHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_cloudfront", None)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(Exception, match="Could not connect"):
        dispatch(event("delete"))


@pytest.mark.parametrize(
    "change",
    [
        {"eventName": "REMOVE"},
        {"eventName": "MODIFY"},
        {"dynamodb": {"Keys": {"p": {"S": "N0"}, "s": {"S": "x"}}, "NewImage": {}}},
        {"dynamodb": {"Keys": {"p": {"S": "C01"}, "s": {"S": "0"}}}},
    ],
)
def test_records_other_than_new_tombstones_are_ignored(change: dict[str, Any]) -> None:
    (record,) = event("delete")["Records"]
    assert deleted_tag(record) == "s-1f00000000000001"
    assert deleted_tag({**record, **change}) is None


# Cables


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
    distribution: str, taken: FakeDeliveries, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TableStreamHandler]:
    assert taken.records == []
    monkeypatch.setenv("TAILRACE_DISTRIBUTION", distribution)
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
    assert delivering(batch) == {"batchItemFailures": []}
    assert taken.records == batch["Records"]


def test_only_failed_records_of_a_batch_are_repeated(
    delivering: TableStreamHandler, taken: FakeDeliveries
) -> None:
    records = [*of("01", "101", "102"), *of("02", "103"), *of("01", "104"), *of("03", "105")]
    taken.failures = {"C01": DeliveryBusy("busy"), "C03": DeliveryBusy("busy")}
    assert delivering({"Records": records}) == {
        "batchItemFailures": [{"itemIdentifier": each} for each in ("101", "102", "104", "105")]
    }
    assert delivering({"Records": of("02", "106")}) == {"batchItemFailures": []}


def test_a_batch_that_fails_is_repeated(
    delivering: TableStreamHandler, taken: FakeDeliveries
) -> None:
    taken.failures = {"C01": DeliveryBusy("busy")}
    with pytest.raises(Exception, match="All records failed"):
        delivering({"Records": of("01", "101", "102")})


def test_with_cables_a_deletion_is_purged_and_delivered(
    delivering: TableStreamHandler, taken: FakeDeliveries, distribution: str, cloudfront: Any
) -> None:
    assert delivering(event("delete")) == {"batchItemFailures": []}
    assert purged(cloudfront, distribution) == [["#s-1f00000000000001"]]
    assert len(taken.records) == 1


def test_a_purge_that_fails_does_not_keep_anything_from_being_delivered(
    delivering: TableStreamHandler, taken: FakeDeliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    records = [*event("delete")["Records"], *of("02", "900")]
    failed = delivering({"Records": records})["batchItemFailures"]
    assert failed == [{"itemIdentifier": records[0]["dynamodb"]["SequenceNumber"]}]
    assert taken.records == records


def test_without_cables_nothing_is_delivered(
    dispatch: TableStreamHandler, taken: FakeDeliveries
) -> None:
    taken.failures = {"C1f00000000000001": DeliveryBusy("busy")}
    assert dispatch(event("append")) == {"batchItemFailures": []}
    assert taken.records == []
    dispatch.close()
