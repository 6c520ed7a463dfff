"""Whose turn it is to export: one at a time, and nobody waits for the dead."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError

from glue_jobs.exporting.turn import KEY, ExportUnderWay, Plan, Turn
from tailrace.errors import BadSetting
from tests.engines import fresh_name

FIRST, SECOND = Plan("first", "planning", 8), Plan("second", "planning", 8)
PLANNED = FIRST._replace(state="planned", parts=("a", "b"), streams=2, segments=3)

FAR = 60.0
"""A lease that does not end during a test."""


@pytest.fixture(params=["ministack", "seaweedfs"])
def s3(request: pytest.FixtureRequest) -> Iterator[Any]:
    """With the bucket `bucket`, on each of them."""
    engine = request.getfixturevalue(request.param)
    keys = getattr(engine, "access_key", "test"), getattr(engine, "secret_key", "test")
    client = boto3.client("s3", "us-east-1", endpoint_url=engine.url,
                          aws_access_key_id=keys[0], aws_secret_access_key=keys[1])  # fmt: skip
    client.bucket = fresh_name("turn")
    client.create_bucket(Bucket=client.bucket)
    yield client
    client.close()


def silent(_: str) -> None:
    pass


def test_the_first_has_its_own_plan_and_the_second_too_when_that_is_done(s3: Any) -> None:
    with Turn(s3, s3.bucket) as turn:
        assert turn.take(FIRST, silent) == FIRST
        turn.write(PLANNED)
        turn.write(PLANNED._replace(state="done", parts=()))
    with Turn(s3, s3.bucket) as turn:
        assert turn.take(SECOND, silent) == SECOND


def test_who_shows_signs_of_life_is_not_disturbed(s3: Any) -> None:
    said: list[str] = []
    with Turn(s3, s3.bucket, 2) as turn:
        turn.take(FIRST, silent)
        with pytest.raises(ExportUnderWay, match="another export is under way, run first"):
            Turn(s3, s3.bucket, 2).take(SECOND, said.append)
        turn.write(PLANNED)
    assert said == ["waiting to see whether run first is still under way"]


def test_what_the_dead_have_planned_is_finished_and_what_they_have_not_is_not(s3: Any) -> None:
    with Turn(s3, s3.bucket, FAR) as turn:
        turn.take(FIRST, silent)
    with Turn(s3, s3.bucket, 0.5) as other:
        assert other.take(SECOND, silent) == SECOND
        other.write(PLANNED)
    with Turn(s3, s3.bucket, 0.5) as third:
        assert third.take(SECOND, silent) == PLANNED


def test_who_comes_back_from_the_dead_changes_nothing(s3: Any) -> None:
    with Turn(s3, s3.bucket, FAR) as turn:
        turn.take(FIRST, silent)
        turn.write(PLANNED)
        time.sleep(1.1)
        with Turn(s3, s3.bucket, 0.5) as other:
            assert other.take(SECOND, silent) == PLANNED
            other.write(PLANNED._replace(state="done", parts=()))
        with Turn(s3, s3.bucket, FAR) as third:
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
            with Turn(s3, s3.bucket, FAR) as faster:
                faster.take(FIRST, silent)
        return found

    monkeypatch.setattr(Turn, "_wait", slow)
    with pytest.raises(ExportUnderWay, match="has begun at the same moment"):
        Turn(s3, s3.bucket, FAR).take(SECOND, silent)


def test_a_change_whose_answer_was_lost_counts(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put = s3.put_object

    def losing(**request: Any) -> None:
        put(**request)
        raise EndpointConnectionError(endpoint_url="lost")

    with Turn(s3, s3.bucket, FAR) as turn:
        turn.take(FIRST, silent)
        monkeypatch.setattr(s3, "put_object", losing)
        with pytest.raises(EndpointConnectionError):
            turn.write(PLANNED)
        monkeypatch.setattr(s3, "put_object", put)
        turn.write(PLANNED)
        turn.write(PLANNED._replace(state="done"))


def test_buckets_stay_as_many_as_they_were(s3: Any) -> None:
    with Turn(s3, s3.bucket, FAR) as turn:
        turn.take(FIRST, silent)
        turn.write(FIRST._replace(state="done"))
    before = s3.get_object(Bucket=s3.bucket, Key=KEY)["Body"].read()
    with pytest.raises(BadSetting, match=r"is in 8 buckets.*pass --buckets 8"):
        Turn(s3, s3.bucket, FAR).take(SECOND._replace(buckets=9), silent)
    assert s3.get_object(Bucket=s3.bucket, Key=KEY)["Body"].read() == before
