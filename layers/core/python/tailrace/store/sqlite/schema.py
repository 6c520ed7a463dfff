"""The SQLite file: every table, and how entries and streams become rows.

| table     | key          | holds                                 | written by | changes        |
|-----------|--------------|---------------------------------------|------------|----------------|
| streams   | id           | path, config, last access, soft flag  | create     | see below      |
| entries   | id, n        | body or its file, and the state after | append     | never          |
| producers | id, producer | epoch and sequence, once spilled      | append     | by later spill |
| journal   | n            | the entries of a commit, see `journal` | append     | never          |
| edges     | parent, fork | that a fork needs its source          | create     | never          |
| segments  | id, first    | a file with slots `first` to `stop`   | compaction | never          |
| identity  | none         | one row: the random id of the file    | first open | never          |
| subscriptions | id       | the record of a subscription          | create     | every wake     |
| links     | uid, path    | a stream that a subscription follows  | linking    | acks, news     |

A stream's `path` becomes NULL when it is deleted, `soft` is set while only forks need it, and
`accessed` with `deadline` follow its reads and writes. Rows of deleted streams are swept.
`id` is the incarnation, a random integer: a path that is created again never meets its old rows.
An entry's `state` holds only what its other columns do not: closure, sequence and producers. Its
`parts` say where each append begins, if it has several.
A slot is in the journal, in `entries` or in a segment: it moves in one transaction. The journal may
have it as well as one of the others, since a record goes when all its entries are folded.
A segment's row has all that a read needs of its file: `name`, the bytes of data and index, the
checksum of the index, and `at`, when it was committed, in milliseconds.
`tailrace.protocols.subscriptions.core.records` describes what `subscriptions` and `links` hold;
`pending` says whether a link has news, and `due_at` when a subscription wants attention.

Version 2 has `segments`, version 3 `identity`, version 4 `parts`, version 5 `journal`, version 6
subscriptions; a file of an earlier version gets what it lacks when it is opened.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tailrace.log.state import Entry
from tailrace.store.codec import parts_text, rest_of
from tailrace.store.sqlite.files import PRIVATE_FILE

VERSION: Final = 6
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

_IDENTITY = "CREATE TABLE identity (id TEXT NOT NULL);"

_JOURNAL = "CREATE TABLE journal (n INTEGER PRIMARY KEY, entries BLOB NOT NULL);"
_SUBSCRIPTIONS = """
CREATE TABLE subscriptions (
  id TEXT PRIMARY KEY,
  uid TEXT NOT NULL,
  version INTEGER NOT NULL,
  due_at INTEGER,
  record BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX subscriptions_due ON subscriptions (due_at) WHERE due_at IS NOT NULL;
CREATE TABLE links (
  uid TEXT NOT NULL,
  path TEXT NOT NULL,
  id TEXT NOT NULL,
  stream INTEGER,
  epoch INTEGER NOT NULL,
  explicit INTEGER NOT NULL,
  glob INTEGER NOT NULL,
  acked TEXT NOT NULL,
  tail TEXT NOT NULL,
  pending INTEGER NOT NULL,
  PRIMARY KEY (uid, path)
) WITHOUT ROWID;
CREATE INDEX links_by_stream ON links (stream) WHERE stream IS NOT NULL;
CREATE INDEX links_explicit ON links (path) WHERE explicit = 1;
CREATE INDEX links_pending ON links (uid, path) WHERE pending = 1;
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
  parts BLOB,
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
{_SEGMENTS}{_IDENTITY}{_JOURNAL}{_SUBSCRIPTIONS}"""

_PARTS = "ALTER TABLE entries ADD COLUMN parts BLOB;"

_ADDED: Final = (_SEGMENTS, _IDENTITY, _PARTS, _JOURNAL, _SUBSCRIPTIONS)
"""Tables and columns that each version has added to the one before it."""

_STEPS: Final = {0: _TABLES} | {
    version: "".join(_ADDED[version - 1 :]) for version in range(1, VERSION)
}
"""The statements that upgrade a file of an earlier version, or a new one, to this one."""

_NAMED: Final = 3
"""The first version with `identity`."""

Row = tuple[int, int, int, int, int, bytes | None, str | None, bytes | None, bytes | None]
"""A row of `entries`, in the order of its columns."""


def connect(directory: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection that commits only when told to; used by one thread at a time."""
    path = directory / FILE_NAME
    if not read_only and not path.exists():
        # SQLite would make it as the umask says, and `-wal` and `-shm` like it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))
    uri = path.absolute().as_uri()
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
        # Many commits change the same pages: SQLite's own 1,000 pages fill in a tenth of a second.
        db.execute("PRAGMA wal_autocheckpoint = 4000")
    return db


@contextmanager
def snapshot(db: sqlite3.Connection) -> Iterator[None]:
    """Run the reads inside on one snapshot of the database."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("COMMIT")


def is_new(db: sqlite3.Connection) -> bool:
    """Whether a file has no tables yet."""
    return db.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def stored_id(db: sqlite3.Connection) -> str | None:
    """The id of a file; None when it is new, or of a version that had none."""
    if _version(db) < _NAMED:
        return None
    row = db.execute("SELECT id FROM identity").fetchone()
    return None if row is None else str(row[0])


def upgrade(db: sqlite3.Connection, identity: str) -> None:
    """Give a new file, or one of an earlier version, its tables and an id, in one transaction."""
    version = _version(db)
    if version != VERSION:
        name = f"INSERT INTO identity VALUES ('{identity}');"  # noqa: S608 - hex
        db.executescript(
            f"BEGIN;{_STEPS[version]}{name if version < _NAMED else ''}"
            f"PRAGMA user_version = {VERSION};COMMIT;"
        )


def _version(db: sqlite3.Connection) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == 0 and not is_new(db):
        raise sqlite3.DatabaseError(f"{FILE_NAME} is a database, but not one of Tailrace")
    if version != VERSION and version not in _STEPS:
        raise sqlite3.DatabaseError(
            "it was written by another version of Tailrace"
            f" (its format is {version}, this one reads {VERSION})"
        )
    return int(version)


def entry_row(chain: int, entry: Entry, file: str | None) -> Row:
    state = entry.state
    return (
        chain,
        entry.slot,
        state.offset,
        state.size,
        state.written_at,
        None if file else entry.body,
        file,
        rest_of(state),
        parts_text(entry.parts),
    )
