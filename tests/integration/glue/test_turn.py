"""Whose turn it is to export: one at a time, and nobody waits for the dead."""

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
from glue_jobs.exporting import turn as module
from glue_jobs.exporting.turn import KEY, ExportUnderWay, Plan, Turn
from tailrace.errors import BadSetting

FIRST, SECOND = Plan("first", "planning", 8), Plan("second", "planning", 8)
PLANNED = FIRST._replace(state="planned", parts=("a", "b"), streams=2, segments=3)

LEASE = 3600.0
"""One that ends during a test only if the test says that it is later."""


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


def test_the_first_has_its_own_plan_and_the_second_too_when_that_is_done(s3: Any) -> None:
    with Turn(s3, s3.bucket, LEASE) as turn:
        assert turn.take(FIRST, silent) == FIRST
        turn.write(PLANNED)
        turn.write(PLANNED._replace(state="done", parts=()))
    with Turn(s3, s3.bucket, LEASE) as turn:
        assert turn.take(SECOND, silent) == SECOND


def test_who_shows_signs_of_life_is_not_disturbed(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    said: list[str] = []
    with Turn(s3, s3.bucket, LEASE) as turn:
        turn.take(FIRST, silent)

        def alive(text: str) -> None:
            said.append(text)
            turn.write(FIRST)

        with pytest.raises(ExportUnderWay, match="another export is under way, run first"):
            Turn(s3, s3.bucket, LEASE).take(SECOND, alive)
        turn.write(PLANNED)
    assert said == ["waiting to see whether run first is still under way"]


def test_signs_of_life_come_by_themselves(s3: Any) -> None:
    def tag() -> str:
        found: str = s3.head_object(Bucket=s3.bucket, Key=KEY)["ETag"]
        return found

    with Turn(s3, s3.bucket, 0.04) as turn:
        turn.take(FIRST, silent)
        first, end = tag(), time.monotonic() + 300
        while tag() == first:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_what_the_dead_have_planned_is_finished_and_what_they_have_not_is_not(s3: Any) -> None:
    with Turn(s3, s3.bucket, LEASE) as turn:
        turn.take(FIRST, silent)
    s3.later += LEASE
    with Turn(s3, s3.bucket, LEASE) as other:
        assert other.take(SECOND, silent) == SECOND
        other.write(PLANNED)
    s3.later += LEASE
    with Turn(s3, s3.bucket, LEASE) as third:
        assert third.take(SECOND, silent) == PLANNED


def test_who_comes_back_from_the_dead_changes_nothing(s3: Any) -> None:
    with Turn(s3, s3.bucket, LEASE) as turn:
        turn.take(FIRST, silent)
        turn.write(PLANNED)
        s3.later += LEASE
        with Turn(s3, s3.bucket, LEASE) as other:
            assert other.take(SECOND, silent) == PLANNED
            other.write(PLANNED._replace(state="done", parts=()))
        with Turn(s3, s3.bucket, LEASE) as third:
            assert third.take(SECOND, silent) == SECOND
            with pytest.raises(ExportUnderWay, match="another export has taken over from run fir"):
                turn.write(PLANNED._replace(state="done"))
            third.write(SECOND._replace(state="planned"))


def test_of_two_who_begin_at_the_same_moment_one_does(
    s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = Turn._wait

    def slow(turn: Turn, say: Any) -> Any:
        found = wait(turn, say)
        with monkeypatch.context() as patch:
            patch.setattr(Turn, "_wait", wait)
            with Turn(s3, s3.bucket, LEASE) as faster:
                faster.take(FIRST, silent)
        return found

    monkeypatch.setattr(Turn, "_wait", slow)
    with pytest.raises(ExportUnderWay, match="has begun at the same moment"):
        Turn(s3, s3.bucket, LEASE).take(SECOND, silent)


def test_a_change_whose_answer_was_lost_counts(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put = s3.put_object

    def losing(**request: Any) -> None:
        put(**request)
        raise EndpointConnectionError(endpoint_url="lost")

    with Turn(s3, s3.bucket, LEASE) as turn:
        turn.take(FIRST, silent)
        monkeypatch.setattr(s3, "put_object", losing)
        with pytest.raises(EndpointConnectionError):
            turn.write(PLANNED)
        monkeypatch.setattr(s3, "put_object", put)
        turn.write(PLANNED)
        turn.write(PLANNED._replace(state="done"))


def test_buckets_stay_as_many_as_they_were(s3: Any) -> None:
    with Turn(s3, s3.bucket, LEASE) as turn:
        turn.take(FIRST, silent)
        turn.write(FIRST._replace(state="done"))
    before = s3.get_object(Bucket=s3.bucket, Key=KEY)["Body"].read()
    with pytest.raises(BadSetting, match=r"is in 8 buckets.*pass --buckets 8"):
        Turn(s3, s3.bucket, LEASE).take(SECOND._replace(buckets=9), silent)
    assert s3.get_object(Bucket=s3.bucket, Key=KEY)["Body"].read() == before
