"""The engines do what the store relies on, with nothing but `Engine.env` to find them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore.exceptions import ClientError

from devtools.engines.ministack import Engine
from devtools.engines.seaweedfs import Seaweedfs
from devtools.processes import fresh_name
from tests.support.dynamo import shared_loader

__all__ = ["shared_loader"]


@pytest.fixture
def session(aws: Engine, monkeypatch: pytest.MonkeyPatch) -> boto3.Session:
    for name, value in aws.env.items():
        monkeypatch.setenv(name, value)
    return boto3.Session()


@pytest.fixture
def dynamodb(session: boto3.Session) -> Iterator[Any]:
    client = session.client("dynamodb")
    yield client
    client.close()


@pytest.fixture
def s3(session: boto3.Session) -> Iterator[Any]:
    client = session.client("s3")
    yield client
    client.close()


@pytest.fixture
def signed_s3(seaweedfs: Seaweedfs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in seaweedfs.client_env.items():
        monkeypatch.setenv(name, value)
    client = boto3.Session().client("s3")
    yield client
    client.close()


def test_only_one_conditional_put_succeeds_and_the_others_get_its_item(
    dynamodb: Any,
) -> None:
    table = fresh_name("engines")
    dynamodb.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "p", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "p", "KeyType": "HASH"}],
    )

    def winner(writer: int) -> int:
        try:
            dynamodb.put_item(
                TableName=table,
                Item={"p": {"S": "contended"}, "w": {"N": str(writer)}},
                ConditionExpression="attribute_not_exists(p)",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except dynamodb.exceptions.ConditionalCheckFailedException as refused:
            return int(refused.response["Item"]["w"]["N"])
        return writer

    with ThreadPoolExecutor(8) as pool:
        winners = set(pool.map(winner, range(8)))
    stored = dynamodb.get_item(TableName=table, Key={"p": {"S": "contended"}}, ConsistentRead=True)
    assert winners == {int(stored["Item"]["w"]["N"])}


def test_s3_keeps_the_first_object_of_a_name(s3: Any) -> None:
    bucket = fresh_name("engines")
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="a/b", Body=b"\0first", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.put_object(Bucket=bucket, Key="a/b", Body=b"second", IfNoneMatch="*")
    body = s3.get_object(Bucket=bucket, Key="a/b")["Body"]
    assert body.read() == b"\0first"


def test_seaweedfs_keeps_the_first_object_of_a_name(signed_s3: Any) -> None:
    bucket = fresh_name("engines")
    signed_s3.create_bucket(Bucket=bucket)
    signed_s3.put_object(Bucket=bucket, Key="a/b", Body=b"\0first", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed") as refused:
        signed_s3.put_object(Bucket=bucket, Key="a/b", Body=b"second", IfNoneMatch="*")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    body = signed_s3.get_object(Bucket=bucket, Key="a/b")["Body"]
    assert body.read() == b"\0first"


def test_seaweedfs_reads_ranges(signed_s3: Any) -> None:
    bucket = fresh_name("engines")
    signed_s3.create_bucket(Bucket=bucket)
    whole = bytes(range(256)) * 8192
    signed_s3.put_object(Bucket=bucket, Key="ranges", Body=whole)

    def read(wanted: str) -> tuple[bytes, str]:
        got = signed_s3.get_object(Bucket=bucket, Key="ranges", Range=wanted)
        return got["Body"].read(), got["ContentRange"]

    assert read("bytes=300-555") == (whole[300:556], f"bytes 300-555/{len(whole)}")
    assert read("bytes=-7") == (whole[-7:], f"bytes {len(whole) - 7}-{len(whole) - 1}/{len(whole)}")
    with pytest.raises(ClientError, match="InvalidRange"):
        read(f"bytes={len(whole)}-")


def test_seaweedfs_refuses_a_wrong_secret_and_no_secret(
    seaweedfs: Seaweedfs, signed_s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = fresh_name("engines")
    signed_s3.create_bucket(Bucket=bucket)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    stranger = boto3.Session().client("s3")
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        stranger.put_object(Bucket=bucket, Key="stranger", Body=b"")
    stranger.close()
    assert httpx.put(f"{seaweedfs.url}/{bucket}/nobody", trust_env=False).status_code == 403
    assert "Contents" not in signed_s3.list_objects_v2(Bucket=bucket)


def test_two_seaweedfs_run_side_by_side(seaweedfs: Seaweedfs, tmp_path: Path) -> None:
    with Seaweedfs(tmp_path) as other:
        assert other.url != seaweedfs.url
        for each in (other, seaweedfs):
            assert httpx.get(f"{each.url}/healthz", trust_env=False).is_success
