from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tailrace.cli import main, options
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.settings import Settings
from tailrace.store.sqlite.store import SqliteStore
from tailrace.streams import Streams


@asynccontextmanager
async def opened(data: Path) -> AsyncIterator[Streams]:
    settings = Settings(data=str(data), hot_bytes=0, inline_bytes=1024)
    store = SqliteStore(settings)
    await store.open()
    try:
        yield Streams(store, settings)
    finally:
        await store.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two streams with five entries each, one of them large, and one with a single entry."""

    async def fill() -> None:
        async with opened(tmp_path / "data") as streams:
            for path, entries in (("a", 5), ("b", 5), ("c", 1)):
                await streams.create(path, Create(content_type="text/plain"))
                for number in range(entries):
                    body = b"x" * (2_000 if number == 2 else 10)
                    await streams.append(path, Append(body, "text/plain"))

    asyncio.run(fill())
    return tmp_path / "data"


def compact(data: Path, *args: str) -> Result:
    env = {"TAILRACE_SEGMENT_MAX_MESSAGES": "2", "TAILRACE_DATA": None}
    return CliRunner(env=env).invoke(
        main, ["compact", "--data", str(data), *args], prog_name="tailrace", catch_exceptions=False
    )


def test_the_summary_has_the_number_of_moved_entries(data: Path) -> None:
    result = compact(data)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "moved 8 entries (4,060 bytes) of 2 streams into 4 segments\n"
    assert compact(data).stdout == "nothing to move\n"


def test_json_output(data: Path) -> None:
    expected = {"streams": 2, "entries": 8, "bytes": 4060, "segments": 4, "failed": []}
    assert json.loads(compact(data, "--json").stdout) == expected
    assert json.loads(compact(data, "--json").stdout) == {
        **dict.fromkeys(expected, 0),
        "failed": [],
    }


def test_compaction_keeps_all_data_and_removes_files(data: Path) -> None:
    async def contents() -> list[bytes]:
        async with opened(data) as streams:
            views = [await streams.view(path, 0) for path in "abc"]
            return [b"".join(view.bodies) for view in views]

    before = asyncio.run(contents())
    assert list(data.glob("bodies/*/*"))
    compact(data)
    assert not list(data.glob("bodies/*/*")), "large bodies are in segments now"
    assert asyncio.run(contents()) == before


def test_long_compaction_reports_progress(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "PROGRESS_SECONDS", 0)
    lines = compact(data).stderr.splitlines()
    assert len(lines) == 4
    assert lines[0] == "2 entries (20 bytes) of 1 stream so far"
    assert compact(data, "--json").stderr == ""


def test_data_of_a_running_server_is_not_touched(data: Path) -> None:
    async def try_it() -> Result:
        async with opened(data):
            return await asyncio.to_thread(compact, data, "--json")

    result = asyncio.run(try_it())
    assert result.exit_code == 1
    error = json.loads(result.stderr)["error"]
    assert error["code"] == "DATA_DIRECTORY_IN_USE"
    assert str(data) in error["message"]
    assert not list(data.glob("segments/*/*"))


def test_missing_directory_is_not_created(tmp_path: Path) -> None:
    result = compact(tmp_path / "none")
    assert result.exit_code == 3
    assert result.stderr == (
        f"tailrace: data directory '{tmp_path / 'none'}' does not exist; check --data\n"
    )
    assert not (tmp_path / "none").exists()


def test_a_bad_setting_is_exit_2(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_SEGMENT_MAX_BYTES", "few")
    result = compact(data)
    assert result.exit_code == 2
    assert "TAILRACE_SEGMENT_MAX_BYTES" in result.stderr


def test_a_stream_that_cannot_be_compacted_is_exit_1(data: Path) -> None:
    db = sqlite3.connect(data / "tailrace.db")
    db.execute("DELETE FROM entries WHERE n = 1 AND id = (SELECT id FROM streams WHERE path = 'a')")
    db.commit()
    db.close()
    result = compact(data, "--json")
    assert result.exit_code == 1
    (why,) = json.loads(result.stdout)["failed"]
    assert why.startswith("cannot compact 'a': slot 2 of ")
    assert json.loads(result.stderr)["error"]["message"] == why
    assert compact(data).stderr == f"tailrace: {why}\n"
