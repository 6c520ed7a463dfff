"""The export in the Glue catalogue."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from devtools.engines.ministack import Ministack
from devtools.processes import fresh_name
from glue_jobs.exporting import catalogue as module
from glue_jobs.exporting.catalogue import Catalogue
from glue_jobs.exporting.messages import COLUMNS, PARTITIONS
from tailrace.errors import BadSetting, StoreUnavailable

PLACE = "s3://somewhere/export/messages/"


@pytest.fixture(scope="module")
def glue(ministack: Ministack) -> Any:
    return boto3.client(
        "glue", "us-east-1", endpoint_url=ministack.url,
        aws_access_key_id="test", aws_secret_access_key="test",
    )  # fmt: skip


@pytest.fixture
def database() -> str:
    return fresh_name("catalogue")


def table_of(glue: Any, database: str) -> dict[str, Any]:
    table: dict[str, Any] = glue.get_table(DatabaseName=database, Name="messages")["Table"]
    return table


def columns_of(glue: Any, database: str) -> list[tuple[str, str]]:
    columns = table_of(glue, database)["StorageDescriptor"]["Columns"]
    return [(column["Name"], column["Type"]) for column in columns]


def values_of(glue: Any, database: str) -> list[list[str]]:
    pages = glue.get_paginator("get_partitions")
    found = pages.paginate(DatabaseName=database, TableName="messages")
    return [partition["Values"] for page in found for partition in page["Partitions"]]


def test_database_and_table_are_created_once(glue: Any, database: str) -> None:
    for _ in range(2):
        Catalogue(glue, database, "messages", PLACE).prepare()
    table = table_of(glue, database)
    assert table["StorageDescriptor"]["Location"] == PLACE
    assert table["Parameters"]["classification"] == "parquet"
    assert [key["Name"] for key in table["PartitionKeys"]] == ["day", "bucket", "run"]
    assert columns_of(glue, database) == [(column.name, column.kind) for column in COLUMNS]


def test_new_columns_are_appended_to_the_table(
    glue: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(module, "COLUMNS", COLUMNS[:3])
        Catalogue(glue, database, "messages", PLACE).prepare()
    table = table_of(glue, database)
    storage, keys = table["StorageDescriptor"], table["PartitionKeys"]
    storage["Columns"].append({"Name": "somebody_elses", "Type": "string"})
    told = {"Name": "messages", "Parameters": {"kept": "yes"}, "PartitionKeys": keys}
    glue.update_table(DatabaseName=database, TableInput={**told, "StorageDescriptor": storage})
    Catalogue(glue, database, "messages", PLACE).prepare()
    new = [(column.name, column.kind) for column in COLUMNS]
    assert columns_of(glue, database) == [*new[:3], ("somebody_elses", "string"), *new[3:]]
    assert table_of(glue, database)["Parameters"] == {"kept": "yes"}


def test_a_table_with_other_columns_is_refused(
    glue: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Catalogue(glue, database, "messages", PLACE).prepare()
    with pytest.raises(BadSetting, match="choose another table with --database"):
        Catalogue(glue, database, "messages", "s3://elsewhere/export/messages/").prepare()
    monkeypatch.setattr(module, "COLUMNS", [COLUMNS[0]._replace(kind="bigint"), *COLUMNS[1:]])
    with pytest.raises(BadSetting, match="other columns"):
        Catalogue(glue, database, "messages", PLACE).prepare()
    monkeypatch.undo()
    monkeypatch.setattr(module, "PARTITIONS", PARTITIONS[:2])
    with pytest.raises(BadSetting, match="other columns"):
        Catalogue(glue, database, "messages", PLACE).prepare()


def test_partitions_are_there_once_however_often_they_are_registered(
    glue: Any, database: str
) -> None:
    catalogue = Catalogue(glue, database, "messages", PLACE)
    catalogue.prepare()
    wanted = [(["2026-09-21", str(bucket), "run"], f"{PLACE}{bucket}/") for bucket in range(250)]
    catalogue.register(wanted[:120])
    catalogue.register(wanted)
    assert sorted(values_of(glue, database)) == sorted(values for values, _ in wanted)


def test_a_refused_partition_raises_an_error() -> None:
    class Refusing:
        def batch_create_partition(self, **_: Any) -> Any:
            detail = {"ErrorCode": "InternalServiceException", "ErrorMessage": "not now"}
            return {"Errors": [{"PartitionValues": ["a"], "ErrorDetail": detail}]}

    with pytest.raises(StoreUnavailable, match=r"\['a'\] of db.messages: not now"):
        Catalogue(Refusing(), "db", "messages", PLACE).register([(["a"], PLACE)])
