"""The SQLite file: every table, and how entries and streams become rows.

| table     | key          | holds                                 | written by | changes        |
|-----------|--------------|---------------------------------------|------------|----------------|
| streams   | id           | path, config, last access, soft flag  | create     | see below      |
| entries   | id, n        | body or its file, and the state after | append     | never          |
| producers | id, producer | epoch and sequence, once spilled      | append     | by later spill |
| edges     | parent, fork | that a fork needs its source          | create     | never          |
| segments  | id, first    | a file with slots `first` to `stop`   | compaction | never          |

A stream's `path` becomes NULL when it is deleted, `soft` is set while only forks need it, and
`accessed` with `deadline` follow its reads and writes. Rows of deleted streams are swept.
`id` is the incarnation, a random integer: a path that is created again never meets its old rows.
An entry's `state` holds only what its other columns do not: closure, sequence and producers.
A slot is in `entries` or in a segment, never in both or in neither: it moves in one transaction.
A segment's row has what a read needs to know of its file: `name`, the bytes of data and index, the
checksum of the index, and `at`, when it was committed, in milliseconds.

Version 2 has `segments`; a file of version 1 gets it when it is opened.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tailrace.log.state import Entry
from tailrace.store.codec import rest_of

VERSION: Final = 2
FILE_NAME: Final = "tailrace.db"

_SEGMENTS = """
CREATE TABLE segments (
  id INTEGER NOT NULL,
  first INTEGER NOT NULL,
  stop INTEGER NOT NULL,
  name TEXT NOT NULL,
  data_bytes INTEGER NOT NULL,
  index_bytes INTEGER NOT NULL,
  index_checksum INTEGER NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (id, first)
) WITHOUT ROWID;
"""

_TABLES = f"""
CREATE TABLE streams (
  id INTEGER PRIMARY KEY,
  path TEXT,
  config TEXT NOT NULL,
  accessed INTEGER NOT NULL,
  deadline INTEGER,
  soft INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX streams_by_path ON streams (path) WHERE path IS NOT NULL;
CREATE INDEX streams_by_deadline ON streams (deadline) WHERE deadline IS NOT NULL;
CREATE INDEX streams_deleted ON streams (id) WHERE path IS NULL;
CREATE TABLE entries (
  id INTEGER NOT NULL,
  n INTEGER NOT NULL,
  offset INTEGER NOT NULL,
  size INTEGER NOT NULL,
  at INTEGER NOT NULL,
  body BLOB,
  file TEXT,
  state BLOB,
  PRIMARY KEY (id, n)
) WITHOUT ROWID;
CREATE TABLE producers (
  id INTEGER NOT NULL,
  producer TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  PRIMARY KEY (id, producer)
) WITHOUT ROWID;
CREATE TABLE edges (
  parent INTEGER NOT NULL,
  fork INTEGER NOT NULL,
  PRIMARY KEY (parent, fork)
) WITHOUT ROWID;
{_SEGMENTS}"""

_STEPS: Final = {0: _TABLES, 1: _SEGMENTS}
"""What a file of an earlier version, or a new one, needs to be of this one."""

Row = tuple[int, int, int, int, int, bytes | None, str | None, bytes | None]
"""A row of `entries`, in the order of its columns."""


def connect(directory: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection that commits only when told to; used by one thread at a time."""
    uri = (directory / FILE_NAME).absolute().as_uri()
    db = sqlite3.connect(
        f"{uri}?mode=ro" if read_only else uri,
        uri=True,
        isolation_level=None,
        # Opened by one thread, used by another; never by two at once.
        check_same_thread=False,
    )
    if not read_only:
        db.execute("PRAGMA journal_mode = WAL")
        # FULL: the log is fsynced at every commit, so what was acknowledged survives power loss.
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA journal_size_limit = 67108864")
    return db


@contextmanager
def snapshot(db: sqlite3.Connection) -> Iterator[None]:
    """Whatever is read inside is of one moment."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("COMMIT")


def open_file(directory: Path) -> sqlite3.Connection:
    """A connection for writing; a new file, or an old one, gets its tables, in one transaction."""
    db = connect(directory)
    try:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version in _STEPS:
            db.executescript(f"BEGIN;{_STEPS[version]}PRAGMA user_version = {VERSION};COMMIT;")
        elif version != VERSION:
            raise sqlite3.DatabaseError(
                "it was written by another version of Tailrace"
                f" (its format is {version}, this one reads {VERSION})"
            )
    except sqlite3.Error:
        db.close()
        raise
    return db


def entry_row(chain: int, entry: Entry, file: str | None) -> Row:
    state = entry.state
    return (
        chain,
        entry.n,
        state.offset,
        state.size,
        state.at,
        None if file else entry.body,
        file,
        rest_of(state),
    )
