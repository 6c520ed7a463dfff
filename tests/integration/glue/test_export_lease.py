"""The export lease: one export at a time, and a dead holder is replaced."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError

from devtools.processes import fresh_name
from glue_jobs.exporting import export_lease as module
from glue_jobs.exporting.export_lease import KEY, ExportLease, ExportUnderWay, Plan
from tailrace.errors import BadSetting

FIRST, SECOND = Plan("first", "planning", 8), Plan("second", "planning", 8)
PLANNED = FIRST._replace(state="planned", parts=("a", "b"), streams=2, segments=3)

LEASE = 3600.0
"""Expires during a test only if the test says so."""


@pytest.fixture(params=["ministack", "seaweedfs"])
def s3(request: pytest.FixtureRequest) -> Iterator[Any]:
    """With the bucket `bucket`, on each of them; its clock is `later` seconds ahead."""
    engine = request.getfixturevalue(request.param)
    keys = getattr(engine, "access_key", "test"), getattr(engine, "secret_key", "test")
    client = boto3.client("s3", "us-east-1", endpoint_url=engine.url,
                          aws_access_key_id=keys[0], aws_secret_access_key=keys[1])  # fmt: skip
    get = client.get_object

    def get_object(**request: Any) -> Any:
        answer = get(**request)
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
        now = parsedate_to_datetime(headers["date"]) + timedelta(seconds=client.later)
        headers["date"] = format_datetime(now, usegmt=True)
        return answer

    client.later, client.get_object = 0.0, get_object
    client.bucket = fresh_name("turn")
    client.create_bucket(Bucket=client.bucket)
    yield client
    client.close()


def silent(_: str) -> None:
    pass


def test_a_run_uses_its_own_plan_once_the_previous_is_done(s3: Any) -> None:
    with ExportLease(s3, s3.bucket, LEASE) as lease:
        assert lease.acquire(FIRST, silent) == FIRST
        lease.write(PLANNED)
        lease.write(PLANNED._replace(state="done", parts=()))
    with ExportLease(s3, s3.bucket, LEASE) as lease:
        assert lease.acquire(SECOND, silent) == SECOND


def test_a_renewed_lease_is_not_taken_over(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    said: list[str] = []
    with ExportLease(s3, s3.bucket, LEASE) as lease:
        lease.acquire(FIRST, silent)

        def alive(text: str) -> None:
            said.append(text)
            lease.write(FIRST)

        with pytest.raises(ExportUnderWay, match="another export is running, run first"):
            ExportLease(s3, s3.bucket, LEASE).acquire(SECOND, alive)
        lease.write(PLANNED)
    assert said == ["waiting to see whether run first is still running"]


def test_the_lease_is_renewed_in_the_background(s3: Any) -> None:
    def tag() -> str:
        found: str = s3.head_object(Bucket=s3.bucket, Key=KEY)["ETag"]
        return found

    with ExportLease(s3, s3.bucket, 0.04) as lease:
        lease.acquire(FIRST, silent)
        first, end = tag(), time.monotonic() + 300
        while tag() == first:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_complete_plans_of_dead_runs_are_finished_and_incomplete_ones_dropped(s3: Any) -> None:
    with ExportLease(s3, s3.bucket, LEASE) as lease:
        lease.acquire(FIRST, silent)
    s3.later += LEASE
    with ExportLease(s3, s3.bucket, LEASE) as other:
        assert other.acquire(SECOND, silent) == SECOND
        other.write(PLANNED)
    s3.later += LEASE
    with ExportLease(s3, s3.bucket, LEASE) as third:
        assert third.acquire(SECOND, silent) == PLANNED


def test_a_previous_holder_cannot_write(s3: Any) -> None:
    with ExportLease(s3, s3.bucket, LEASE) as lease:
        lease.acquire(FIRST, silent)
        lease.write(PLANNED)
        s3.later += LEASE
        with ExportLease(s3, s3.bucket, LEASE) as other:
            assert other.acquire(SECOND, silent) == PLANNED
            other.write(PLANNED._replace(state="done", parts=()))
        with ExportLease(s3, s3.bucket, LEASE) as third:
            assert third.acquire(SECOND, silent) == SECOND
            with pytest.raises(
                ExportUnderWay, match="another export has taken over and continues run fir"
            ):
                lease.write(PLANNED._replace(state="done"))
            third.write(SECOND._replace(state="planned"))


def test_one_of_two_concurrent_runs_acquires_the_lease(
    s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = ExportLease._wait

    def slow(turn: ExportLease, say: Any) -> Any:
        found = wait(turn, say)
        with monkeypatch.context() as patch:
            patch.setattr(ExportLease, "_wait", wait)
            with ExportLease(s3, s3.bucket, LEASE) as faster:
                faster.acquire(FIRST, silent)
        return found

    monkeypatch.setattr(ExportLease, "_wait", slow)
    with pytest.raises(ExportUnderWay, match="has started at the same time"):
        ExportLease(s3, s3.bucket, LEASE).acquire(SECOND, silent)


def test_a_write_whose_response_was_lost_counts(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put = s3.put_object

    def losing(**request: Any) -> None:
        put(**request)
        raise EndpointConnectionError(endpoint_url="lost")

    with ExportLease(s3, s3.bucket, LEASE) as lease:
        lease.acquire(FIRST, silent)
        monkeypatch.setattr(s3, "put_object", losing)
        with pytest.raises(EndpointConnectionError):
            lease.write(PLANNED)
        monkeypatch.setattr(s3, "put_object", put)
        lease.write(PLANNED)
        lease.write(PLANNED._replace(state="done"))


def test_the_number_of_buckets_cannot_change(s3: Any) -> None:
    with ExportLease(s3, s3.bucket, LEASE) as lease:
        lease.acquire(FIRST, silent)
        lease.write(FIRST._replace(state="done"))
    before = s3.get_object(Bucket=s3.bucket, Key=KEY)["Body"].read()
    with pytest.raises(BadSetting, match=r"have 8 buckets.*pass --buckets 8"):
        ExportLease(s3, s3.bucket, LEASE).acquire(SECOND._replace(buckets=9), silent)
    assert s3.get_object(Bucket=s3.bucket, Key=KEY)["Body"].read() == before
