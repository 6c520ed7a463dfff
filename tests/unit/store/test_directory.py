"""The data directory of the embedded store: a start destroys nothing, and shows nothing to others.

Each test damages a directory as an operator, a crash or a wrong mount may do, and starts on it.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import DamagedData, StoreUnavailable, UnreadableData
from tailrace.limits import ORPHAN_FILE_SECONDS
from tailrace.settings import Settings
from tailrace.store.sqlite import commit, directory, schema
from tailrace.store.sqlite.directory import MARKER
from tailrace.store.sqlite.store import SqliteStore
from tests.support.earlier_versions import as_version
from tests.support.orphans import sweep_for_days
from tests.support.store_contract import append, bodies, create, find

LARGE = b"x" * 2_000
CONTENTS = [LARGE, b"1", b"2", LARGE, LARGE, b"5"]
"""They fill two segments, and a large body stays in a file of its own."""

DAY = ORPHAN_FILE_SECONDS * 1000


@asynccontextmanager
async def opened(data: Path, **more: Any) -> AsyncIterator[SqliteStore]:
    """A store that keeps nothing in memory and makes segments of two entries."""
    chosen = {"hot_bytes": 0, "inline_bytes": 1024, "segment_max_messages": 2, **more}
    store = SqliteStore(Settings(data=str(data), **chosen))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def fill(data: Path, path: str = "a") -> None:
    async with opened(data) as store:
        await create(store, path, *CONTENTS)
        assert (await store.compact()).segments == 2


async def assert_whole(data: Path, path: str = "a") -> None:
    async with opened(data) as store:
        await store.sweep()
        assert await bodies(store, await find(store, path)) == CONTENTS


async def refusal(data: Path) -> str:
    """The message to the operator; the directory stays as it is, and is not left locked."""
    before = listing(data)
    for _ in range(2):
        with pytest.raises(UnreadableData, match=str(data)) as raised:
            await SqliteStore(Settings(data=str(data))).open()
    assert listing(data) == before
    return str(raised.value)


def listing(data: Path) -> dict[str, bytes]:
    """Files of streams, and the marker, with what they hold."""
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in data.rglob("*")
        if path.is_file() and not path.name.startswith((schema.FILE_NAME, "tailrace.lock"))
    }


def chain_files(data: Path) -> list[Path]:
    return sorted(path for kind in ("bodies", "segments") for path in data.glob(f"{kind}/*/*"))


def query(data: Path, statement: str) -> list[Any]:
    db = sqlite3.connect(data / schema.FILE_NAME)
    try:
        found = db.execute(statement).fetchall()
        db.commit()
        return found
    finally:
        db.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def made(data: Path) -> Path:
    """A directory that was there before the store."""
    data.mkdir(0o755)
    return data


# The database is lost


def remove(database: Path) -> None:
    database.unlink()


def empty(database: Path) -> None:
    os.truncate(database, 0)


def without_tables(database: Path) -> None:
    database.unlink()
    schema.connect(database.parent).close()


LOSSES: dict[str, Callable[[Path], None]] = {
    "missing": remove,
    "empty": empty,
    "without tables": without_tables,
}


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "unmarked"])
@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES.keys())
async def test_files_without_their_database_are_kept(
    data: Path, tmp_path: Path, lose: Callable[[Path], None], marked: bool
) -> None:
    await fill(data)
    copy = shutil.copy(data / schema.FILE_NAME, tmp_path)
    lose(data / schema.FILE_NAME)
    if not marked:
        (data / MARKER).unlink()
    told = await refusal(data)
    assert "restore the database" in told
    assert ("tailrace.id, " if marked else "") + "bodies, segments away" in told
    shutil.copy(copy, data)
    await assert_whole(data)


async def test_a_marker_without_its_database_is_refused(data: Path) -> None:
    async with opened(data, inline_bytes=1 << 20) as store:
        await create(store, "a", b"small")
    (data / schema.FILE_NAME).unlink()
    assert "move tailrace.id away" in await refusal(data)


@pytest.mark.parametrize("lose", [remove, empty])
async def test_the_log_of_a_lost_database_is_kept(
    data: Path, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    """SQLite removes the log of an empty database when it opens it."""
    log = f"{schema.FILE_NAME}-wal"
    image = tmp_path / "image"
    async with opened(data) as store:
        await create(store, "a", b"one")
        shutil.copytree(data, image, ignore=shutil.ignore_patterns("*-shm", "bodies", "*.id"))
    copy = shutil.copy(image / schema.FILE_NAME, tmp_path)
    lose(image / schema.FILE_NAME)
    before = (image / log).read_bytes()
    assert f"move {log} away" in await refusal(image)
    assert (image / log).read_bytes() == before
    shutil.copy(copy, image)
    async with opened(image) as store:
        assert await bodies(store, await find(store, "a")) == [b"one"]


async def test_a_directory_without_its_old_data_starts_empty(data: Path, tmp_path: Path) -> None:
    await fill(data)
    (data / schema.FILE_NAME).unlink()
    for name in ("bodies", "segments", MARKER):
        (data / name).rename(tmp_path / name)
    async with opened(data) as store:
        assert await store.tail("a") is None


@pytest.mark.parametrize("entry", ["", "lost+found/#12", "bodies/lost+found/1-a-1", "notes.txt"])
async def test_a_directory_without_data_starts_as_new(made: Path, entry: str) -> None:
    if entry:
        (made / entry).parent.mkdir(parents=True, exist_ok=True)
        (made / entry).write_bytes(b"x")
    await fill(made)
    await assert_whole(made)
    assert not entry or (made / entry).read_bytes() == b"x"


async def test_a_database_of_another_program_is_refused(made: Path) -> None:
    query(made, "CREATE TABLE recipes (x)")
    assert "not one of Tailrace" in await refusal(made)


# Database and files of different servers


async def test_a_database_with_files_of_another_server_is_refused(
    data: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    await fill(data)
    await fill(other, "b")
    mine = shutil.copy(data / schema.FILE_NAME, tmp_path)
    shutil.copy(other / schema.FILE_NAME, data)
    told = await refusal(data)
    assert "different servers or backups" in told
    assert (data / MARKER).read_text().strip() in told
    shutil.copy(mine, data)
    await assert_whole(data)


@pytest.mark.parametrize("version", [2, 3])
async def test_files_of_another_server_are_noticed_without_ids(
    data: Path, tmp_path: Path, version: int
) -> None:
    """In version 2 there was no id, and a backup may lack the marker."""
    other = tmp_path / "other"
    await fill(data)
    await fill(other, "b")
    shutil.copy(other / schema.FILE_NAME, data)
    if version == 2:
        as_version(data, 2)
    else:
        (data / MARKER).unlink()
    assert "knows none of the streams" in await refusal(data)
    if version == 2:
        assert query(data, "PRAGMA user_version") == [(2,)]


# Restores


@pytest.mark.parametrize("left", [None, "", "nonsense"], ids=["none", "empty", "broken"])
async def test_a_restore_without_a_marker_is_adopted(data: Path, left: str | None) -> None:
    await fill(data)
    identity = (data / MARKER).read_text()
    if left is None:
        (data / MARKER).unlink()
    else:
        (data / MARKER).write_text(left)
    await assert_whole(data)
    assert (data / MARKER).read_text() == identity


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "unmarked"])
async def test_a_file_of_version_2_is_upgraded_and_gets_an_id(data: Path, marked: bool) -> None:
    await fill(data)
    before = (data / MARKER).read_text()
    as_version(data, 2)
    if not marked:
        (data / MARKER).unlink()
    await assert_whole(data)
    after = (data / MARKER).read_text()
    assert query(data, "SELECT id FROM identity") == [(after.strip(),)]
    assert (after == before) == marked
    assert query(data, "PRAGMA user_version") == [(schema.VERSION,)]


async def test_an_older_database_leaves_a_day_to_restore_the_newer_one(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(data)
    older = shutil.copy(data / schema.FILE_NAME, tmp_path / "older")
    await fill(data, "b")
    newer = shutil.copy(data / schema.FILE_NAME, tmp_path / "newer")
    for file in chain_files(data):
        os.utime(file, (0, 0))
    everything = listing(data)

    shutil.copy(older, data / schema.FILE_NAME)
    await assert_whole(data)
    assert listing(data) == everything
    assert "names none of 1 files in" in caplog.text

    shutil.copy(newer, data / schema.FILE_NAME)
    await assert_whole(data, "b")
    assert {stat.S_IMODE(file.stat().st_mode) for file in chain_files(data)} == {0o600}

    shutil.copy(older, data / schema.FILE_NAME)
    async with opened(data) as store:
        await sweep_for_days(store)
    assert len(chain_files(data)) == 3
    await assert_whole(data)


# Orphans


async def orphan(data: Path) -> Path:
    """A file beside others of its stream, as a crash leaves it."""
    await fill(data)
    file = chain_files(data)[0]
    return Path(shutil.copy(file, file.with_name("0-0123456789abcdef-0")))


async def sweep_at(data: Path, now: int) -> None:
    store = SqliteStore(Settings(data=str(data)), lambda: now)
    await store.open()
    await store.sweep()
    await store.close()


async def test_an_orphan_is_removed_a_day_after_it_was_first_seen(data: Path) -> None:
    """The servers that look may be different ones, none of which lives for a day."""
    file = await orphan(data)
    now = int(file.stat().st_mtime * 1000) + 10 * DAY
    for after in (0, 1, DAY - 1):
        await sweep_at(data, now + after)
        assert file.exists()
    await sweep_at(data, now + DAY)
    assert not file.exists()
    await assert_whole(data)


async def test_an_orphan_from_the_future_is_kept(data: Path) -> None:
    file = await orphan(data)
    now = int(file.stat().st_mtime * 1000) - 10 * DAY
    for after in (0, DAY, 2 * DAY):
        await sweep_at(data, now + after)
    assert file.exists()
    assert file.stat().st_mode & stat.S_IWUSR, "nor is it marked"


async def test_a_damaged_database_does_not_tell_orphans(
    data: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await orphan(data)
    async with opened(data) as store:
        await create(store, "filler", *[b"y" * 1_000] * 30)
    now = int(file.stat().st_mtime * 1000)
    await sweep_at(data, now)
    (root,) = query(data, "SELECT rootpage FROM sqlite_master WHERE name = 'producers'")[0]
    (page,) = query(data, "PRAGMA page_size")[0]
    with (data / schema.FILE_NAME).open("r+b") as database:
        database.seek((root - 1) * page)
        database.write(b"\xff" * page)
    with pytest.raises(UnreadableData, match=r"is damaged .*tailrace restore"):
        await sweep_at(data, now + DAY)
    # Of a large database the start has not looked at everything.
    monkeypatch.setattr(directory, "find_damage", lambda *_: None)
    await sweep_at(data, now + DAY)
    assert file.exists()
    assert "the database is damaged" in caplog.text


# Files are lost


@pytest.mark.parametrize(("kind", "missing"), [("bodies", 1), ("segments", 2)])
async def test_missing_files_are_logged_at_the_start(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, missing: int
) -> None:
    await fill(data)
    (data / kind).rename(tmp_path / kind)
    async with opened(data) as store:
        assert f"{missing} files that the database names are missing in" in caplog.text
        assert str(data / kind) in caplog.text
        await store.sweep()
        with pytest.raises(DamagedData):
            await bodies(store, await find(store, "a"))
        await append(store, await find(store, "a"), b"6")
        await append(store, await find(store, "a"), b"7")
        failed = (await store.compact()).failed
        assert [why.partition(":")[0] for why in failed] == ["cannot compact 'a'"]
    shutil.rmtree(data / kind)
    (tmp_path / kind).rename(data / kind)
    async with opened(data) as store:
        assert await bodies(store, await find(store, "a")) == [*CONTENTS, b"6", b"7"]


# A start that is cut short


class Images:
    """Copies of a directory before each step of a start, as a SIGKILL there would leave it."""

    def __init__(self, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[Path] = []
        self._data = data
        self._is_busy = False
        for name in ("mkdir", "open", "write", "fsync", "chmod", "replace"):
            monkeypatch.setattr(os, name, self._watched(getattr(os, name)))
        connect = sqlite3.connect

        def traced(*args: Any, **more: Any) -> sqlite3.Connection:
            db: sqlite3.Connection = connect(*args, **more)
            db.set_trace_callback(lambda _: self._take())
            return db

        monkeypatch.setattr(sqlite3, "connect", traced)

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **more: Any) -> Any:
            self._take()
            return function(*args, **more)

        return run

    def _take(self) -> None:
        if self._is_busy or not self._data.exists():
            return
        self._is_busy = True
        image = self._data.with_name(f"image{len(self.taken)}")
        self.taken.append(Path(shutil.copytree(self._data, image)))
        self._is_busy = False


@pytest.mark.parametrize("kind", ["new", "version 2", "version 2, marked", "restored"])
async def test_a_start_that_was_killed_at_any_step_is_repeated(
    data: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind != "new":
        await fill(data)
        if kind != "restored":
            as_version(data, 2)
        if kind != "version 2, marked":
            (data / MARKER).unlink()
    with monkeypatch.context() as patched:
        images = Images(data, patched)
        async with opened(data):
            pass
    # Of a new one: files, statements, the marker and the folders.
    assert len(images.taken) > (20 if kind == "new" else 5)
    for image in images.taken:
        if kind == "new":
            await fill(image)
        await assert_whole(image)
        assert query(image, "SELECT id FROM identity") == [((image / MARKER).read_text().strip(),)]


# Files are private


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(data: Path) -> dict[str, int]:
    """Those of everything in a directory that others have some access to."""
    found = {str(path): stat.S_IMODE(path.stat().st_mode) for path in (data, *data.rglob("*"))}
    return {path: mode for path, mode in found.items() if mode & 0o077}


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("directory", ["data", "made"])
async def test_files_of_the_store_are_for_their_owner_only(
    directory: str, request: pytest.FixtureRequest
) -> None:
    data: Path = request.getfixturevalue(directory)
    async with opened(data) as store:
        await create(store, "a", *CONTENTS)
        await store.compact()
        assert (data / f"{schema.FILE_NAME}-wal").exists()
        assert (data / f"{schema.FILE_NAME}-shm").exists()
        assert modes(data) == {}


@pytest.mark.usefixtures("open_umask")
async def test_access_of_others_is_taken_away(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    await fill(data)
    async with opened(data):
        assert caplog.text == ""
    ours = [data, *(data / name for name in (schema.FILE_NAME, MARKER, "bodies", "segments"))]
    for path in ours:
        path.chmod(0o755)
    async with opened(data):
        assert modes(data) == {}
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("took access away from other users")
    assert all(f"'{path}'" in line for path in ours)


async def test_access_of_others_that_cannot_be_removed_is_logged(
    made: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Any, *_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    monkeypatch.setattr(os, "chmod", refuse)
    await fill(made)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == f"other users have access, which cannot be changed: '{made}'"


async def test_a_directory_with_other_files_stays_open_to_others(
    made: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be /tmp, or the home directory of somebody."""
    (made / "notes.txt").touch(0o644)
    await fill(made)
    assert set(modes(made)) == {str(made), str(made / "notes.txt")}
    assert "which has other files too" in caplog.text


# Messages


async def test_a_client_sees_no_paths(
    data: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "CALM_SECONDS", 0)
    async with opened(data) as store:
        tail = await create(store, "a", b"before")
        shutil.rmtree(data / "bodies")
        (data / "bodies").write_bytes(b"")
        for _ in range(3):
            with pytest.raises(StoreUnavailable) as raised:
                await append(store, tail, LARGE)
            assert str(raised.value) == "the store could not commit: Not a directory"
        (line,) = [record.getMessage() for record in caplog.records]
        assert str(data / "bodies") in line, "once, however often it fails"
        await append(store, tail, b"after")
        assert caplog.records[-1].getMessage() == "the store commits again"


async def test_a_client_sees_nothing_of_a_bug(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(data) as store:
        await create(store, "a")

        def fail(_: sqlite3.Connection) -> None:
            raise RuntimeError("/etc/secret")

        with pytest.raises(StoreUnavailable, match="the log of the server says why") as raised:
            await store._database.write(fail)
        assert "secret" not in str(raised.value)
        assert caplog.records[0].exc_info is not None


@pytest.mark.parametrize("full", [True, False])
async def test_a_start_on_a_full_disk_says_so(
    data: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    def no_space(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    await fill(data)
    with monkeypatch.context() as patched:
        patched.setattr(schema, "connect", fail)
        if full:
            patched.setattr(os, "write", no_space)
        why = "disk I/O error (No space left on device)" if full else "disk I/O error"
        assert await refusal(data) == f"cannot use the data in '{data}': {why}"
    assert not (data / "tailrace.probe").exists()
    await assert_whole(data)


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    data = tmp_path / "file" / "data"
    with pytest.raises(UnreadableData, match=f"cannot use the data in '{data}'.*Not a directory"):
        await SqliteStore(Settings(data=str(data))).open()
