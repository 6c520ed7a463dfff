"""The purge function has CloudFront forget deleted streams."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from devtools.processes import ROOT
from tailrace.aws.handlers.purge import PAUSE_SECONDS, TOO_MANY, PurgeHandler, purged_tag
from tests.support.sleeps import replace_sleep


def event(name: str = "purge/delete") -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "events" / f"{name}.json").read_text())
    return loaded


@pytest.fixture
def handler(distribution: str, monkeypatch: pytest.MonkeyPatch) -> PurgeHandler:
    monkeypatch.setenv("TAILRACE_DISTRIBUTION", distribution)
    return PurgeHandler()


def purged(cloudfront: Any, distribution: str) -> list[list[str]]:
    listed = cloudfront.list_invalidations(DistributionId=distribution)["InvalidationList"]
    return [
        cloudfront.get_invalidation(DistributionId=distribution, Id=each["Id"])["Invalidation"][
            "InvalidationBatch"
        ]["Paths"]["Items"]
        for each in listed.get("Items", [])
    ]


def test_a_deletion_purges_by_the_streams_tag(
    handler: PurgeHandler,
    distribution: str,
    cloudfront: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    handler(event())
    assert purged(cloudfront, distribution) == [["#s-1f00000000000001"]]
    assert '"purged_streams_total":[1.0]' in capsys.readouterr().out.replace(" ", "")


@pytest.mark.parametrize("name", ["append", "delete"])
def test_nothing_else_is_purged(
    handler: PurgeHandler, distribution: str, cloudfront: Any, name: str
) -> None:
    handler(event(f"dispatch/{name}"))
    assert purged(cloudfront, distribution) == []


def test_many_deletions_are_one_purge(
    handler: PurgeHandler, distribution: str, cloudfront: Any
) -> None:
    batch = event()
    (record,) = batch["Records"]
    other = json.loads(json.dumps(record).replace("C1f0", "C2f0"))
    batch["Records"] += [other, record, *event("dispatch/append")["Records"]]
    handler(batch)
    assert purged(cloudfront, distribution) == [["#s-1f00000000000001", "#s-2f00000000000001"]]


def test_a_purge_that_fails_fails_the_batch(
    handler: PurgeHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(Exception, match="Could not connect"):
        handler(event())


class Busy:
    """A CloudFront in which too many purges are in progress."""

    def create_invalidation(self, **_: Any) -> None:
        raise ClientError({"Error": {"Code": TOO_MANY, "Message": ""}}, "CreateInvalidation")


def test_too_many_purges_are_repeated_later(
    handler: PurgeHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(handler, "_cloudfront", Busy())
    replace_sleep(monkeypatch, pauses.append)
    with pytest.raises(ClientError, match=TOO_MANY):
        handler(event())
    assert pauses == [PAUSE_SECONDS]


@pytest.mark.parametrize(
    "change",
    [
        {"eventName": "REMOVE"},
        {"eventName": "MODIFY"},
        {"dynamodb": {"Keys": {"p": {"S": "N0"}, "s": {"S": "x"}}, "NewImage": {}}},
        {"dynamodb": {"Keys": {"p": {"S": "C01"}, "s": {"S": "0"}}}},
    ],
)
def test_only_new_tombstones_have_a_tag(change: dict[str, Any]) -> None:
    (record,) = event()["Records"]
    assert purged_tag(record) == "s-1f00000000000001"
    assert purged_tag({**record, **change}) is None
