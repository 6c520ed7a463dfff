"""Orphans of the embedded store: files of earlier processes that no row names.

A crash between a file and its row leaves one, and so does the restore of an older database, which
somebody may want to take back. So an orphan is only marked when it is first seen: it is made
read-only and dated to that moment. It is removed when it has been marked for `ORPHAN_SECONDS`. A
file that the database names again by then is unmarked.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
from pathlib import Path

from tailrace.limits import ORPHAN_SECONDS
from tailrace.store.sqlite.files import PRIVATE_FILE, ChainFiles

logger = logging.getLogger("tailrace")

_MARKED = 0o400


def remove_orphans(
    db: sqlite3.Connection, bodies: ChainFiles, segments: ChainFiles, now: int
) -> None:
    """Mark new orphans, and remove those that were marked long enough ago."""
    body = "SELECT 1 FROM entries WHERE id = ? AND n = ? AND file = ?"
    segment = "SELECT 1 FROM segments WHERE id = ? AND first = ? AND name = ?"
    due: list[Path] = []
    for files, query in ((bodies, body), (segments, segment)):
        marked = 0
        for chain, slot, name in files.left_behind():
            path = files.path(chain, name)
            named = db.execute(query, (chain, slot, name)).fetchone() is not None
            try:
                status = path.stat()
                is_marked = not status.st_mode & stat.S_IWUSR
                age = now - status.st_mtime_ns // 1_000_000
                if named:
                    if is_marked:
                        path.chmod(PRIVATE_FILE)
                elif age < 0:
                    # A clock is wrong, or was: no age can be told.
                    continue
                elif not is_marked:
                    os.utime(path, ns=(now * 1_000_000, now * 1_000_000))
                    path.chmod(_MARKED)
                    marked += 1
                elif age >= ORPHAN_SECONDS * 1000:
                    due.append(path)
            except OSError as error:
                logger.warning("a file stays that is not needed: %s", error)
        if marked:
            logger.warning(
                "the database names none of %d files in '%s'; they are removed after a day,"
                " unless a database is restored that does",
                marked,
                files.root,
            )
    if due:
        _remove(db, due)


def _remove(db: sqlite3.Connection, due: list[Path]) -> None:
    # A damaged database may have lost the rows that name them.
    (health,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if health != "ok":
        logger.error("the database is damaged (%s); files that it does not name stay", health)
        return
    for path in due:
        path.unlink(missing_ok=True)
    logger.info("removed %d files that the database does not name", len(due))
