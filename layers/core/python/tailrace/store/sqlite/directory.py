"""The data directory of the embedded store: used by one process, and never by mistake.

| entry                   | holds                                                            |
|-------------------------|------------------------------------------------------------------|
| `tailrace.lock`         | nothing; it is locked by the process that uses the directory     |
| `tailrace.db`           | the database, with a random id; SQLite's `-wal` is part of it    |
| `tailrace.id`           | the id of the database that the files of the directory belong to |
| `bodies/`, `segments/`  | files that rows of the database name                             |
| `tailrace.keys`         | the keys of subscriptions, made when they are first needed       |

The first four are made in this order, each durable before the next, so that a crash in between
leaves a directory that starts. If any of them but the lock is there without the database, it was
lost: a new one would turn all files into orphans. If the two ids differ, or if the files belong to
none of the streams of a database without `tailrace.id` beside it, database and files are of
different servers. Such directories are refused, and nothing in them is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import re
import secrets
import sqlite3
import stat
from pathlib import Path
from typing import IO, Final

from tailrace.errors import DataDirectoryInUse, UnreadableData
from tailrace.limits import START_CHECK_SECONDS
from tailrace.store.sqlite import journal, schema
from tailrace.store.sqlite.files import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    ChainFiles,
    sync_folder,
    write_new,
)
from tailrace.store.sqlite.verify import find_damage

LOCK: Final = "tailrace.lock"
MARKER: Final = "tailrace.id"
KEYS: Final = "tailrace.keys"

PROBE_BYTES: Final = 128 << 10
"""Written to learn whether the disk is full: about what SQLite needs to open a database."""

_ID = re.compile(r"[0-9a-f]{32}")
_OURS = re.compile(r"tailrace\..*|bodies|segments")

logger = logging.getLogger("tailrace")


class DataDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.bodies = ChainFiles(path / "bodies")
        self.segments = ChainFiles(path / "segments")

    def open(self) -> tuple[IO[str], sqlite3.Connection]:
        """Lock the directory and open its database, for writing; both are made when missing."""
        try:
            self.path.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            lock = self._own()
            try:
                _make_private(self.path)
                return lock, self._open_database()
            except BaseException:
                lock.close()
                raise
        except (OSError, sqlite3.DatabaseError) as error:
            why = _reason(self.path, error)
            raise UnreadableData(f"cannot use the data in '{self.path}': {why}") from error

    def _own(self) -> IO[str]:
        """Make this process the only one that uses the directory."""
        descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        lock = os.fdopen(descriptor, "r+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise DataDirectoryInUse(
                f"another Tailrace server uses the data directory '{self.path}'; "
                "stop it, or choose another directory with --data"
            ) from None
        return lock

    def _open_database(self) -> sqlite3.Connection:
        marked = self._marked_id()
        if _size(self.path / schema.FILE_NAME) == 0:
            # Before SQLite opens it: it removes the log of an empty database.
            self._refuse_loss(f"{schema.FILE_NAME}-wal")
        db = schema.connect(self.path)
        try:
            stored = schema.stored_id(db)
            self._refuse_damage(db)
            if schema.is_new(db):
                self._refuse_loss()
            elif stored is None or marked is None:
                self._refuse_strangers(db)
            elif stored != marked:
                raise UnreadableData(
                    f"the database and the files in '{self.path}' are of different servers or"
                    f" backups ({MARKER} has the id {marked}, the database {stored}): restore both"
                    f" from the same backup, or remove {MARKER} if they do belong together"
                )
            # A database of an earlier version takes the id that is there: a crash before the marker
            # is written must not leave two.
            identity = stored or marked or secrets.token_hex(16)
            schema.upgrade(db, identity)
            if marked != identity:
                self._mark(identity)
            try:
                journal.replay(db)
            except journal.BadRecord as error:
                raise UnreadableData(
                    f"{error}: restore the database in '{self.path}' from a backup"
                ) from None
            self._tell_missing(db)
            self.bodies.prepare()
            self.segments.prepare()
        except BaseException:
            db.close()
            raise
        return db

    def _refuse_damage(self, db: sqlite3.Connection) -> None:
        found = find_damage(db, START_CHECK_SECONDS)
        if found is not None:
            raise UnreadableData(
                f"the database in '{self.path}' is damaged ({' '.join(found.split())}): move the"
                " directory away and restore a backup with `tailrace restore`; `tailrace check`"
                " says more"
            )

    def _marked_id(self) -> str | None:
        """The id in the marker, if it has one."""
        try:
            text = (self.path / MARKER).read_text("ascii", "replace").strip()
        except FileNotFoundError:
            return None
        return text if _ID.fullmatch(text) else None

    def _mark(self, identity: str) -> None:
        sync_folder(self.path)
        new = self.path / f"{MARKER}.new"
        new.unlink(missing_ok=True)
        write_new(new, f"{identity}\n".encode())
        new.replace(self.path / MARKER)
        sync_folder(self.path)

    def _refuse_loss(self, *more: str) -> None:
        """Refuse a directory that has data of a database, but not the database."""
        left = [name for name in more if _size(self.path / name)]
        left += [MARKER] if (self.path / MARKER).exists() else []
        left += [files.root.name for files in (self.bodies, self.segments) if not files.is_empty()]
        if left:
            raise UnreadableData(
                f"the database {schema.FILE_NAME} in '{self.path}' is missing or empty, but not"
                f" what belongs to it ({', '.join(left)}): restore the database; or, to give up"
                f" all streams and start from scratch, move {', '.join(left)} away"
            )

    def _refuse_strangers(self, db: sqlite3.Connection) -> None:
        """Refuse a directory whose files are all of streams that the database does not know."""
        chain = None
        for chain in itertools.chain(self.bodies.chains(), self.segments.chains()):
            if db.execute("SELECT 1 FROM streams WHERE id = ?", (chain,)).fetchone() is not None:
                return
        if chain is not None:
            raise UnreadableData(
                f"the database in '{self.path}' knows none of the streams that have files in bodies"
                " or segments: restore database and files from the same backup; or, to give up"
                " these files, move bodies and segments away"
            )

    def _tell_missing(self, db: sqlite3.Connection) -> None:
        """Log how many files are missing where that is told by their folder alone."""
        bodies = "SELECT count(*) FROM entries WHERE file IS NOT NULL"
        segments = "SELECT count(*) FROM segments"
        for files, query, is_missing in (
            # Many stores have no large bodies, and counting them reads the whole table.
            (self.bodies, bodies, not self.bodies.root.exists()),
            (self.segments, segments, self.segments.is_empty()),
        ):
            missing = db.execute(query).fetchone()[0] if is_missing else 0
            if missing:
                logger.warning(
                    "%d files that the database names are missing in '%s'; what they hold cannot"
                    " be read until they are restored",
                    missing,
                    files.root,
                )


def _make_private(directory: Path) -> None:
    """Remove access of other users to the directory and to our files in it."""
    entries = [path for path in directory.iterdir() if path.name != "lost+found"]
    known = [path for path in entries if _OURS.fullmatch(path.name)]
    # Keys that others could read are refused, since they may have been: see `KeyFile`.
    ours = [path for path in known if path.name != KEYS]
    paths = [directory, *ours]
    if len(known) < len(entries) and _is_open(directory):
        # It may be a home directory, or /tmp, which others have to get into.
        paths = ours
        logger.warning("other users have access to '%s', which has other files too", directory)
    changed: list[str] = []
    left: list[str] = []
    for path in filter(_is_open, paths):
        with contextlib.suppress(OSError):
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o077)
        (left if _is_open(path) else changed).append(f"'{path}'")
    if changed:
        logger.warning("took access away from other users: %s", ", ".join(changed))
    if left:
        logger.warning("other users have access, which cannot be changed: %s", ", ".join(left))


def _is_open(path: Path) -> bool:
    """Whether other users have access; not to a file that was removed meanwhile."""
    try:
        return path.stat().st_mode & 0o077 != 0
    except FileNotFoundError:
        return False


def probe(directory: Path) -> None:
    """Raise OSError if nothing can be written into a directory; its database may have room left."""
    file = directory / "tailrace.probe"
    file.unlink(missing_ok=True)
    write_new(file, bytes(PROBE_BYTES))
    file.unlink()


def _reason(directory: Path, error: Exception) -> str:
    """Say why a directory cannot be used; on a full disk SQLite only says `disk I/O error`."""
    if isinstance(error, sqlite3.OperationalError):
        try:
            probe(directory)
        except OSError as cause:
            return f"{error} ({cause.strerror})"
    return str(error)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
