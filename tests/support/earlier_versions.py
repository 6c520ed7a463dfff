"""Data directories of the embedded store as earlier versions have written them."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

import orjson

from tailrace.store.sqlite import schema

_STEPS: Final = {
    5: "DROP TABLE links; DROP TABLE subscriptions",
    4: "DROP TABLE journal",
    3: "ALTER TABLE entries DROP COLUMN parts",
    2: "DROP TABLE identity",
    1: "DROP TABLE segments",
}
"""The statements that undo the step from each version to the next."""


def as_version(data: Path, version: int) -> None:
    """Turn a directory, in which no slot has several appends, into one of an earlier version."""
    with contextlib.closing(sqlite3.connect(data / schema.FILE_NAME)) as db, db:
        assert db.execute("SELECT 1 FROM entries WHERE parts IS NOT NULL").fetchone() is None
        for stream, text in db.execute("SELECT id, config FROM streams").fetchall():
            config = orjson.loads(text)
            del config["epoch"]
            if config["fork"] is not None:
                config["fork"] = config["fork"][:5]
            db.execute("UPDATE streams SET config = ? WHERE id = ?", (orjson.dumps(config), stream))
        for table, column in (("entries", "file"), ("segments", "name")):
            _drop_checksums(db, data, table, column)
        for step in range(5, version - 1, -1):
            db.executescript(_STEPS[step])
        db.execute(f"PRAGMA user_version = {version}")


def _drop_checksums(db: sqlite3.Connection, data: Path, table: str, column: str) -> None:
    """Give files names without the checksum of what they hold."""
    folder = data / ("bodies" if column == "file" else "segments")
    rows = f"SELECT id, {column} FROM {table} WHERE {column} IS NOT NULL"
    for chain, name in db.execute(rows).fetchall():
        old = name.rpartition("-")[0]
        with contextlib.suppress(FileNotFoundError):  # The database may be without its files.
            (folder / f"{chain:x}" / name).rename(folder / f"{chain:x}" / old)
        db.execute(
            f"UPDATE {table} SET {column} = ? WHERE id = ? AND {column} = ?",
            (old, chain, name),
        )
