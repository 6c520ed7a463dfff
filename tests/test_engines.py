"""The engines do what the store relies on, with nothing but `Engine.env` to find them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.engines import Engine, fresh_name


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


def test_dynamodb_lets_one_writer_have_a_key_and_shows_the_others_whose_it_is(
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
