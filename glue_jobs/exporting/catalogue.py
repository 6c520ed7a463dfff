"""The table and partitions of the export in the Glue catalogue, for Athena and Spark.

Creating a partition fails if it exists, so registering it twice is harmless.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from glue_jobs.exporting.messages import COLUMNS, PARTITIONS, Column
from tailrace.errors import BadSetting, StoreUnavailable

BATCH: Final = 100
"""The limit of BatchCreatePartition."""

HIVE: Final = "org.apache.hadoop.hive.ql.io.parquet"

Partition = tuple[Sequence[str], str]
"""The values of the partition keys, and the location of its files."""


class Catalogue:
    def __init__(self, glue: Any, database: str, table: str, location: str) -> None:
        """`location`: the folder of all partitions, `s3://…/`."""
        self._glue = glue
        self._database = database
        self._table = table
        self._location = location

    def prepare(self) -> None:
        """Create the database and table if they are missing, and add new columns."""
        try:
            self._glue.get_database(Name=self._database)
        except self._glue.exceptions.EntityNotFoundException:
            self._create(self._glue.create_database, DatabaseInput={"Name": self._database})
        if self._get_table() is None:
            self._create(
                self._glue.create_table, DatabaseName=self._database, TableInput=self._definition()
            )
        table = self._get_table()
        assert table is not None
        self._update(table)

    def register(self, partitions: Iterable[Partition]) -> None:
        rest = iter(partitions)
        while some := list(islice(rest, BATCH)):
            response = self._glue.batch_create_partition(
                DatabaseName=self._database,
                TableName=self._table,
                PartitionInputList=[
                    {"Values": list(values), "StorageDescriptor": _storage(location)}
                    for values, location in some
                ],
            )
            for error in response.get("Errors", ()):
                detail = error["ErrorDetail"]
                if detail["ErrorCode"] != "AlreadyExistsException":
                    raise StoreUnavailable(
                        f"the catalogue refused the partition {error['PartitionValues']} of"
                        f" {self._database}.{self._table}: {detail.get('ErrorMessage')}"
                    )

    def _get_table(self) -> dict[str, Any] | None:
        try:
            response = self._glue.get_table(DatabaseName=self._database, Name=self._table)
        except self._glue.exceptions.EntityNotFoundException:
            return None
        table: dict[str, Any] = response["Table"]
        return table

    def _create(self, create: Any, **what: Any) -> None:
        try:
            create(**what)
        except self._glue.exceptions.AlreadyExistsException:
            return  # A concurrent process created it.

    def _update(self, table: dict[str, Any]) -> None:
        storage = table["StorageDescriptor"]
        keys = [(key["Name"], key["Type"]) for key in table.get("PartitionKeys", ())]
        kinds = {column["Name"]: column["Type"] for column in storage["Columns"]}
        ours = storage["Location"].rstrip("/") == self._location.rstrip("/")
        fits = all(kinds.get(column.name, column.kind) == column.kind for column in COLUMNS)
        if not ours or not fits or keys != [(key.name, key.kind) for key in PARTITIONS]:
            raise BadSetting(
                f"the table {self._database}.{self._table} in the Glue catalogue has other columns,"
                f" or the location {storage['Location']} instead of {self._location}; choose"
                " another table with --database or --catalogue-table"
            )
        new = [column for column in COLUMNS if column.name not in kinds]
        if new:
            columns = [*storage["Columns"], *map(_column, new)]
            definition = self._definition() | {"Parameters": table.get("Parameters", {})}
            definition["StorageDescriptor"] = {**storage, "Columns": columns}
            self._glue.update_table(DatabaseName=self._database, TableInput=definition)

    def _definition(self) -> dict[str, Any]:
        return {
            "Name": self._table,
            "Description": "Messages of streams, as exported by Tailrace.",
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {"EXTERNAL": "TRUE", "classification": "parquet"},
            "PartitionKeys": [*map(_column, PARTITIONS)],
            "StorageDescriptor": _storage(self._location),
        }


def _storage(location: str) -> dict[str, Any]:
    return {
        "Columns": [*map(_column, COLUMNS)],
        "Location": location,
        "InputFormat": f"{HIVE}.MapredParquetInputFormat",
        "OutputFormat": f"{HIVE}.MapredParquetOutputFormat",
        "SerdeInfo": {"SerializationLibrary": f"{HIVE}.serde.ParquetHiveSerDe"},
    }


def _column(column: Column) -> dict[str, str]:
    return {"Name": column.name, "Type": column.kind, "Comment": column.about}
