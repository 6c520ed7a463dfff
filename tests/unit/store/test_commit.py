"""The log of group commits that fail."""

from __future__ import annotations

import errno
import sqlite3

import pytest

from tailrace.errors import StoreUnavailable
from tailrace.store.sqlite import commit
from tailrace.store.sqlite.commit import GroupCommit


class Attempt:
    """A write that fails with an error, if it has one."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def run(self, _: sqlite3.Connection) -> None:
        if self._error is not None:
            raise self._error

    def done(self, _: StoreUnavailable | None) -> None:
        pass


async def test_a_disk_that_is_full_now_and_then_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    commits = GroupCommit(db)
    full = OSError(errno.ENOSPC, "No space left on device")
    other = sqlite3.OperationalError("database or disk is full")
    for error in (full, other, full, None, full, None, other, None):
        commits.add(Attempt(error))
        await commits.drain()
    monkeypatch.setattr(commit, "CALM_SECONDS", 0)
    for _ in range(2):
        commits.add(Attempt(None))
        await commits.drain()
    await commits.close()
    assert caplog.messages == [
        "the store could not commit: OSError: [Errno 28] No space left on device",
        "the store commits again",
    ]


async def test_a_bug_is_logged_whatever_was_logged_before(caplog: pytest.LogCaptureFixture) -> None:
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    commits = GroupCommit(db)
    for error in (OSError("full"), ValueError("a bug")):
        commits.add(Attempt(error))
        await commits.drain()
    await commits.close()
    assert [record.exc_info is not None for record in caplog.records] == [False, True]
