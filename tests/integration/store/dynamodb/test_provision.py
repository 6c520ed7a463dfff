"""Finding the table and the bucket, or making them, or saying what is missing."""

from __future__ import annotations

import boto3
import pytest
from moto import mock_aws

from devtools.engines.ministack import Engine
from devtools.processes import free_port, fresh_name
from tailrace.aws.client import service_access
from tailrace.aws.client.service_access import ServiceAccess, resolve_service_access
from tailrace.errors import BadSetting, StoreUnavailable
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import connect, table_definition


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the engine were not on this machine."""

    def elsewhere(settings: Settings, _: str) -> ServiceAccess:
        return resolve_service_access(settings)._replace(local=False)

    monkeypatch.setattr(service_access, "resolve_service_access", elsewhere)


async def test_a_local_table_is_made_by_itself(dynamodb: Settings, aws: Engine) -> None:
    for _ in range(2):
        backend = await connect(dynamodb)
        answer = await backend.client.call("DescribeTable", {"TableName": dynamodb.table})
        await backend.close()
        table = answer["Table"]
        assert table["TableStatus"] == "ACTIVE"
        assert table["StreamSpecification"]["StreamEnabled"], aws.name


@pytest.mark.usefixtures("far_away")
async def test_a_missing_table_elsewhere_is_named_with_what_to_do(dynamodb: Settings) -> None:
    with pytest.raises(BadSetting) as raised:
        await connect(dynamodb)
    for part in (dynamodb.table, "us-east-1", "--create-table", "TAILRACE_TABLE"):
        assert part in str(raised.value)


@pytest.mark.usefixtures("far_away")
async def test_a_missing_table_is_created_on_demand(dynamodb: Settings) -> None:
    wanted = Settings(store="dynamodb", table=dynamodb.table, create_table=True)
    backend = await connect(wanted)
    assert backend.bucket is None, "no bucket was named, and none is taken for granted there"
    await backend.close()


async def test_a_table_with_other_keys_is_refused(dynamodb: Settings) -> None:
    backend = await connect(dynamodb)
    other = fresh_name("other")
    keys = [{"AttributeName": "id", "KeyType": "HASH"}]
    kinds = [{"AttributeName": "id", "AttributeType": "S"}]
    await backend.client.call(
        "CreateTable",
        {
            "TableName": other,
            "KeySchema": keys,
            "AttributeDefinitions": kinds,
            "BillingMode": "PAY_PER_REQUEST",
        },
    )
    await backend.close()
    with pytest.raises(BadSetting, match=f"'{other}' in us-east-1 was not made for Tailrace"):
        await connect(Settings(store="dynamodb", table=other))


async def test_an_engine_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_DYNAMODB", raising=False)
    endpoint = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(StoreUnavailable, match=f"cannot reach DynamoDB at {endpoint}"):
        await connect(Settings(store="dynamodb", endpoint_url=endpoint))


def test_boto3_takes_the_definition_as_it_is() -> None:
    with mock_aws():
        client = boto3.client("dynamodb", region_name="eu-west-1")
        client.create_table(**table_definition("log"))
        (index,) = client.describe_table(TableName="log")["Table"]["GlobalSecondaryIndexes"]
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}
