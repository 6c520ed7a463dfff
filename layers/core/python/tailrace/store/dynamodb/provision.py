"""Connecting to DynamoDB and S3, and making table and bucket where that is wanted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tailrace.aws.client.failures import Refused, Throttled, Unavailable
from tailrace.aws.client.json_client import Call, JsonClient
from tailrace.aws.client.service_access import ServiceAccess, boto_client, find_service_access
from tailrace.errors import BadSetting, StoreUnavailable
from tailrace.settings import Settings
from tailrace.store.dynamodb.bodies import Bucket, S3Bucket
from tailrace.store.dynamodb.layout import DUE_INDEX
from tailrace.store.dynamodb.table import TableClient

LOCAL_BUCKET: Final = "tailrace"
CREATE_SECONDS: Final = 60

KEYS: Final = [("p", "HASH"), ("s", "RANGE")]
DUE_KEYS: Final = [("g", "HASH"), ("d", "RANGE")]

logger = logging.getLogger("tailrace")


class Backend(NamedTuple):
    """The table and the bucket that a store uses."""

    client: TableClient
    bucket: Bucket | None

    async def close(self) -> None:
        await self.client.close()
        if isinstance(self.bucket, S3Bucket):
            self.bucket.close()


async def connect(
    settings: Settings, meter: Callable[[Call], None] | None = None, *, check_table: bool = True
) -> Backend:
    """Connect to the table and the bucket; check first that the table exists and fits, unless the
    caller knows that."""
    access = await find_service_access(settings)
    client = JsonClient(access, meter=meter)
    if check_table:
        try:
            await _ensure_table(client, access, settings)
        except BaseException:
            await client.close()
            raise
    return Backend(client, _bucket(access, settings))


async def require(settings: Settings) -> None:
    """`BadSetting` unless table and bucket are named and the table is there; makes nothing."""
    access = await find_service_access(settings)
    if not settings.bucket and not access.local:
        raise BadSetting("history needs a bucket: name it with TAILRACE_BUCKET or --bucket")
    client = JsonClient(access, 1)
    try:
        if await _describe(client, access, settings.table) is None:
            raise _missing(access, settings.table)
    finally:
        await client.close()


async def _ensure_table(client: JsonClient, access: ServiceAccess, settings: Settings) -> None:
    name = settings.table
    table = await _describe(client, access, name)
    if table is None:
        if not (access.local or settings.create_table):
            raise _missing(access, name)
        logger.info("creating the table '%s' in %s", name, access.region)
        table = await _create(client, access, name)
    index = {each["IndexName"]: each for each in table.get("GlobalSecondaryIndexes", [])}
    if _keys(table) != KEYS or DUE_INDEX not in index or _keys(index[DUE_INDEX]) != DUE_KEYS:
        raise BadSetting(
            f"the DynamoDB table '{name}' in {access.region} was not made for Tailrace: its keys"
            " are others; name another with TAILRACE_TABLE"
        )


async def _create(client: JsonClient, access: ServiceAccess, name: str) -> dict[str, Any]:
    try:
        await client.call("CreateTable", table_definition(name))
    except Refused as error:
        if error.code != "ResourceInUseException":  # Another process was faster.
            raise BadSetting(f"cannot create the table '{name}': {error}") from error
    async with asyncio.timeout(CREATE_SECONDS):
        while True:
            table = await _describe(client, access, name)
            if table is not None and table["TableStatus"] == "ACTIVE":
                return table
            await asyncio.sleep(0.2)


def table_definition(name: str) -> dict[str, Any]:
    """The table as CreateTable takes it; `infra/storage.py` makes the same."""
    kinds = {"p": "S", "s": "S", "g": "S", "d": "N"}
    return {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": attribute, "AttributeType": kind} for attribute, kind in kinds.items()
        ],
        "KeySchema": _schema(KEYS),
        "GlobalSecondaryIndexes": [
            {
                "IndexName": DUE_INDEX,
                "KeySchema": _schema(DUE_KEYS),
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
    }


async def _describe(client: JsonClient, access: ServiceAccess, name: str) -> dict[str, Any] | None:
    try:
        answer = await client.call("DescribeTable", {"TableName": name})
    except Refused as error:
        if error.code == "ResourceNotFoundException":
            return None
        raise BadSetting(f"cannot use the table '{name}' in {access.region}: {error}") from error
    except (Unavailable, Throttled) as error:
        raise StoreUnavailable(f"cannot reach DynamoDB at {access.endpoint}: {error}") from error
    table: dict[str, Any] = answer["Table"]
    return table


def _missing(access: ServiceAccess, name: str) -> BadSetting:
    return BadSetting(
        f"there is no DynamoDB table '{name}' in {access.region} ({access.endpoint});"
        " deploy the stack, name another with TAILRACE_TABLE,"
        " or let it be created with --create-table"
    )


def _bucket(access: ServiceAccess, settings: Settings) -> Bucket | None:
    """The bucket of large bodies; where none is named only a local one is taken for granted."""
    name = settings.bucket or (LOCAL_BUCKET if access.local else "")

    def use(bucket: str) -> Any:
        client = boto_client("s3", settings)
        if access.local or settings.create_table:
            _ensure_bucket(client, bucket)
        return client

    return S3Bucket(name, use) if name else None


def _ensure_bucket(client: Any, name: str) -> None:
    from botocore.exceptions import ClientError

    try:
        client.head_bucket(Bucket=name)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("404", "NoSuchBucket"):
            raise
        region = client.meta.region_name
        where = {"CreateBucketConfiguration": {"LocationConstraint": region}}
        client.create_bucket(Bucket=name, **({} if region == "us-east-1" else where))


def _schema(keys: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": kind} for name, kind in keys]


def _keys(described: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["AttributeName"], each["KeyType"]) for each in described["KeySchema"]]
