"""Verification of a data directory: everything that the database names is there, and as written."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tailrace.errors import DamagedData
from tailrace.segments.format import BadSegment, unpack
from tailrace.segments.reader import Manifest
from tailrace.store.sqlite import journal, schema
from tailrace.store.sqlite.files import ChainFiles

DATABASE_FIX: Final = "restore the directory from a backup (tailrace restore)"
FILE_FIX: Final = "restore this file from a backup; no restart is needed"

STEPS: Final = 10_000
"""Instructions of SQLite between two looks at the clock."""


class Finding(NamedTuple):
    """One thing that is not as it was written."""

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}; {self.fix}"


class Verified(NamedTuple):
    """The number of things that were looked at."""

    streams: int
    entries: int
    bodies: int
    segments: int


def find_damage(db: sqlite3.Connection, seconds: float) -> str | None:
    """Check a database for at most so many seconds; return the first damage that is found."""
    end = time.monotonic() + seconds
    db.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    try:
        (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            return None
        raise
    finally:
        db.set_progress_handler(None, 0)
    return None if found == "ok" else str(found)


class DirectoryVerifier:
    """Verifies a directory that a server may be using: what it removes meanwhile is not damage."""

    def __init__(self, path: Path, progress: Callable[[Verified], None]) -> None:
        self._path = path
        self._bodies = ChainFiles(path / "bodies")
        self._segments = ChainFiles(path / "segments")
        self._progress = progress
        self.verified = Verified(0, 0, 0, 0)

    def run(self) -> Iterator[Finding]:
        try:
            db = schema.connect(self._path, read_only=True)
            try:
                yield from self._check_database(db)
                yield from self._check_journal(db)
                yield from self._check_chains(db)
                yield from self._check_bodies(db)
                yield from self._check_segments(db)
            finally:
                db.close()
        except sqlite3.DatabaseError as error:
            yield Finding(f"the database cannot be read: {error}", DATABASE_FIX)

    def _check_database(self, db: sqlite3.Connection) -> Iterator[Finding]:
        for (line,) in db.execute("PRAGMA integrity_check(20)").fetchall():
            if line != "ok":
                yield Finding(f"the database is damaged: {' '.join(line.split())}", DATABASE_FIX)
        schema.stored_id(db)  # Its version is one that can be read.

    def _check_journal(self, db: sqlite3.Connection) -> Iterator[Finding]:
        for number, record in db.execute("SELECT n, entries FROM journal"):
            try:
                for _ in journal.decode(record):
                    pass
            except journal.BadRecord as error:
                yield Finding(f"record {number} of the journal is damaged: {error}", DATABASE_FIX)

    def _check_chains(self, db: sqlite3.Connection) -> Iterator[Finding]:
        """Look for gaps: the slots of a chain are consecutive, in segments and behind them."""
        (streams,) = db.execute("SELECT count(*) FROM streams").fetchone()
        entries = 0
        counts = db.execute("SELECT id, min(n), max(n), count(*) FROM entries GROUP BY id")
        for chain, first, last, count in counts:
            entries += count
            if last - first + 1 != count:
                yield Finding(
                    f"stream {chain:x} lacks {last - first + 1 - count} entries", DATABASE_FIX
                )
            (stop,) = db.execute("SELECT max(stop) FROM segments WHERE id = ?", (chain,)).fetchone()
            if stop is not None and first > stop:
                yield Finding(
                    f"stream {chain:x} lacks its entries from {stop} to {first - 1}", DATABASE_FIX
                )
        self._advance(streams=streams, entries=entries)

    def _check_bodies(self, db: sqlite3.Connection) -> Iterator[Finding]:
        named = "SELECT id, n, file FROM entries WHERE file IS NOT NULL"
        for chain, slot, name in db.execute(named).fetchall():
            why = self._read_body(chain, name)
            if why and _is_there(db, f"{named} AND id = ? AND n = ?", chain, slot):
                yield Finding(f"bodies/{chain:x}/{name} {why}", FILE_FIX)
            self._advance(bodies=self.verified.bodies + 1)

    def _read_body(self, chain: int, name: str) -> str:
        try:
            self._bodies.read(chain, name)
        except FileNotFoundError:
            return "is missing"
        except DamagedData:
            return "has another checksum than when written"
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        return ""

    def _check_segments(self, db: sqlite3.Connection) -> Iterator[Finding]:
        for row in db.execute("SELECT * FROM segments").fetchall():
            manifest = Manifest(*row)
            why = self._read_segment(manifest)
            named = "SELECT 1 FROM segments WHERE id = ? AND first = ? AND name = ?"
            if why and _is_there(db, named, manifest.chain, manifest.first, manifest.key):
                yield Finding(f"segments/{manifest.chain:x}/{manifest.key} {why}", FILE_FIX)
            self._advance(segments=self.verified.segments + 1)

    def _read_segment(self, manifest: Manifest) -> str:
        try:
            parts = unpack(self._segments.read(manifest.chain, manifest.key))
        except FileNotFoundError:
            return "is missing"
        except DamagedData:
            return "has another checksum than when written"
        except BadSegment as error:
            return f"is damaged: {error}"
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        if (parts.first, parts.stop) != (manifest.first, manifest.stop):
            return "has other entries than the database says"
        return ""

    def _advance(self, **counts: int) -> None:
        self.verified = self.verified._replace(**counts)
        self._progress(self.verified)


def _is_there(db: sqlite3.Connection, query: str, *key: object) -> bool:
    return db.execute(query, key).fetchone() is not None
