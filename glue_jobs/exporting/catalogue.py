"""The export in the Glue catalogue, by which Athena and Spark find it: a table, and partitions.

A partition is there or not, and can be made once only: what is registered twice is there once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from glue_jobs.exporting.messages import COLUMNS, PARTITIONS, Column
from tailrace.errors import BadSetting, StoreUnavailable

BATCH: Final = 100
"""Most partitions that Glue takes in one BatchCreatePartition."""

HIVE: Final = "org.apache.hadoop.hive.ql.io.parquet"

Partition = tuple[Sequence[str], str]
"""Its values, and where its files are."""


class Catalogue:
    def __init__(self, glue: Any, database: str, table: str, location: str) -> None:
        """`location`: where the files of all partitions are, `s3://…/`."""
        self._glue = glue
        self._database = database
        self._table = table
        self._location = location

    def prepare(self) -> None:
        """Make database and table where they are missing, and add columns that are new."""
        try:
            self._glue.get_database(Name=self._database)
        except self._glue.exceptions.EntityNotFoundException:
            self._make(self._glue.create_database, DatabaseInput={"Name": self._database})
        if self._found() is None:
            self._make(
                self._glue.create_table, DatabaseName=self._database, TableInput=self._definition()
            )
        found = self._found()
        assert found is not None
        self._update(found)

    def register(self, partitions: Iterable[Partition]) -> None:
        rest = iter(partitions)
        while some := list(islice(rest, BATCH)):
            answer = self._glue.batch_create_partition(
                DatabaseName=self._database,
                TableName=self._table,
                PartitionInputList=[
                    {"Values": list(values), "StorageDescriptor": _storage(location)}
                    for values, location in some
                ],
            )
            for error in answer.get("Errors", ()):
                detail = error["ErrorDetail"]
                if detail["ErrorCode"] != "AlreadyExistsException":
                    raise StoreUnavailable(
                        f"the catalogue did not take partition {error['PartitionValues']} of"
                        f" {self._database}.{self._table}: {detail.get('ErrorMessage')}"
                    )

    def _found(self) -> dict[str, Any] | None:
        try:
            answer = self._glue.get_table(DatabaseName=self._database, Name=self._table)
        except self._glue.exceptions.EntityNotFoundException:
            return None
        table: dict[str, Any] = answer["Table"]
        return table

    def _make(self, create: Any, **what: Any) -> None:
        try:
            create(**what)
        except self._glue.exceptions.AlreadyExistsException:
            return  # Another process was faster.

    def _update(self, found: dict[str, Any]) -> None:
        storage = found["StorageDescriptor"]
        keys = [(key["Name"], key["Type"]) for key in found.get("PartitionKeys", ())]
        kinds = {column["Name"]: column["Type"] for column in storage["Columns"]}
        ours = storage["Location"].rstrip("/") == self._location.rstrip("/")
        fits = all(kinds.get(column.name, column.kind) == column.kind for column in COLUMNS)
        if not ours or not fits or keys != [(key.name, key.kind) for key in PARTITIONS]:
            raise BadSetting(
                f"the table {self._database}.{self._table} in the Glue catalogue is of another"
                f" kind, or of {storage['Location']} and not {self._location}; name another with"
                " --database or --catalogue-table"
            )
        new = [column for column in COLUMNS if column.name not in kinds]
        if new:
            columns = [*storage["Columns"], *map(_column, new)]
            definition = self._definition() | {"Parameters": found.get("Parameters", {})}
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
