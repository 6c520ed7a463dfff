"""What the table's stream sets off: a deletion purges what the edge has of the stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.aws.dispatch import Dispatch, deleted_tag

EVENTS = Path(__file__).resolve().parents[2] / "events" / "dispatch"


def event(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return loaded


@pytest.fixture
def dispatch(distribution: str, monkeypatch: pytest.MonkeyPatch) -> Dispatch:
    monkeypatch.setenv("TAILRACE_DISTRIBUTION", distribution)
    return Dispatch()


def purged(cloudfront: Any, distribution: str) -> list[list[str]]:
    listed = cloudfront.list_invalidations(DistributionId=distribution)["InvalidationList"]
    return [
        cloudfront.get_invalidation(DistributionId=distribution, Id=each["Id"])["Invalidation"][
            "InvalidationBatch"
        ]["Paths"]["Items"]
        for each in listed.get("Items", [])
    ]


def test_a_deletion_purges_by_the_streams_tag(
    dispatch: Dispatch, distribution: str, cloudfront: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatch(event("delete")) == {"batchItemFailures": []}
    assert purged(cloudfront, distribution) == [["#s-1f00000000000001"]]
    assert '"purged_streams_total":[1.0]' in capsys.readouterr().out.replace(" ", "")


def test_an_append_purges_nothing(dispatch: Dispatch, distribution: str, cloudfront: Any) -> None:
    dispatch(event("append"))
    assert purged(cloudfront, distribution) == []


def test_many_deletions_are_one_purge(
    dispatch: Dispatch, distribution: str, cloudfront: Any
) -> None:
    batch = event("delete")
    other = json.loads(json.dumps(batch["Records"][0]).replace("C1f0", "C2f0"))
    batch["Records"] += [other, *event("append")["Records"]]
    dispatch(batch)
    assert purged(cloudfront, distribution) == [["#s-1f00000000000001", "#s-2f00000000000001"]]


def test_a_purge_that_fails_fails_the_batch(
    dispatch: Dispatch, monkeypatch: pytest.MonkeyPatch
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
def test_what_is_no_new_tombstone_is_left_alone(change: dict[str, Any]) -> None:
    (record,) = event("delete")["Records"]
    assert deleted_tag(record) == "s-1f00000000000001"
    assert deleted_tag({**record, **change}) is None
