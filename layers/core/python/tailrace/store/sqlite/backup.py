"""Backups of a data directory, made while its server appends, and their restoration.

The database is copied from one snapshot, and then the files that this snapshot names. A server may
remove some of them meanwhile, of what was deleted or compacted since: then another snapshot is
taken.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tailrace.errors import UnreadableData
from tailrace.store.sqlite import journal, schema
from tailrace.store.sqlite.directory import KEYS, MARKER
from tailrace.store.sqlite.files import PRIVATE_FOLDER, sync_folder, write_new

ATTEMPTS: Final = 5
PAGES: Final = 4096
"""Pages of the database that are copied between two reports of progress."""

Progress = Callable[[str], None]


class BackedUp(NamedTuple):
    streams: int
    files: int
    bytes: int


def back_up(source: Path, target: Path, progress: Progress) -> BackedUp:
    """Copy a data directory, or a backup of one, into a new one, as it is at one moment."""
    _refuse_existing(target)
    if not (source / schema.FILE_NAME).exists():
        raise UnreadableData(f"there is no database in '{source}'; check --data")
    partial = _begin(target)
    try:
        for attempt in range(ATTEMPTS):
            shutil.rmtree(partial)
            partial.mkdir(PRIVATE_FOLDER)
            try:
                done = _copy_snapshot(source, partial, progress)
                break
            except FileNotFoundError:
                if attempt == ATTEMPTS - 1:
                    raise UnreadableData(
                        f"files that the database in '{source}' names are missing; `tailrace check`"
                        " names them"
                    ) from None
                progress("the server has removed files meanwhile; starting again")
        _finish(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return done


def _refuse_existing(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UnreadableData(f"'{target}' exists and is not empty; choose a new directory")


def _begin(target: Path) -> Path:
    partial = target.with_name(f"{target.name}.partial")
    if partial.exists():
        raise UnreadableData(
            f"'{partial}' is left from a copy that was interrupted, or one is under way: remove it"
        )
    partial.mkdir(PRIVATE_FOLDER, parents=True)
    return partial


def _finish(partial: Path, target: Path) -> None:
    for folder in [path for path in partial.rglob("*") if path.is_dir()]:
        sync_folder(folder)
    sync_folder(partial)
    if target.exists():
        target.rmdir()
    partial.rename(target)
    sync_folder(target.parent)


def _copy_snapshot(source: Path, target: Path, progress: Progress) -> BackedUp:
    db = schema.connect(source, read_only=True)
    copy = schema.connect(target)
    try:
        # A read transaction: commits go on, and this one does not see them.
        db.execute("BEGIN")
        identity = schema.stored_id(db)
        db.backup(copy, pages=PAGES, progress=_report(progress))
        files = list(_named_files(db))
        (streams,) = db.execute("SELECT count(*) FROM streams WHERE path IS NOT NULL").fetchone()
        copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        db.close()
        copy.close()
    if identity is not None:
        write_new(target / MARKER, f"{identity}\n".encode())
    if (source / KEYS).exists():
        write_new(target / KEYS, (source / KEYS).read_bytes())
    size = (target / schema.FILE_NAME).stat().st_size
    for folder in ("bodies", "segments"):
        (target / folder).mkdir(PRIVATE_FOLDER)
    for number, name in enumerate(files, 1):
        size += _copy_file(source / name, target / name)
        if number % 1000 == 0:
            progress(f"copied {number:,} of {len(files):,} files")
    return BackedUp(streams, len(files), size)


def _report(progress: Progress) -> Callable[[int, int, int], None]:
    def report(_: int, remaining: int, total: int) -> None:
        if remaining:
            progress(f"copied {1 - remaining / total:.0%} of the database")

    return report


def _named_files(db: sqlite3.Connection) -> Iterator[Path]:
    """The files that a snapshot names, by their paths in the directory."""
    for chain, name in db.execute("SELECT id, file FROM entries WHERE file IS NOT NULL"):
        yield Path("bodies") / f"{chain:x}" / name
    for (record,) in db.execute("SELECT entries FROM journal"):
        for row in journal.decode(record):
            if row[6] is not None:
                yield Path("bodies") / f"{row[0]:x}" / row[6]
    for chain, name in db.execute("SELECT id, name FROM segments"):
        yield Path("segments") / f"{chain:x}" / name


def _copy_file(source: Path, target: Path) -> int:
    data = source.read_bytes()
    target.parent.mkdir(PRIVATE_FOLDER, exist_ok=True)
    if not target.exists():
        write_new(target, data)
    return len(data)
