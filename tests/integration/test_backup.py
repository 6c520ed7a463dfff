"""Backup, restoration and verification of a data directory, while a server uses it."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import httpx
import pytest

from devtools.server import Server

TEXT = {"content-type": "text/plain"}
SETTINGS = {
    "TAILRACE_INLINE_BYTES": "1024",
    "TAILRACE_SEGMENT_MAX_MESSAGES": "20",
    "TAILRACE_COMPACT_INTERVAL": "0.3",
    "TAILRACE_SWEEP_INTERVAL": "0.2",
}
STREAMS = [f"s/{number}" for number in range(6)]


def tailrace(*args: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "tailrace", *args]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


class Writers:
    """Append to streams, and delete and create one of them, until they are told to stop."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._append, args=(name,)) for name in STREAMS]
        self.appended = dict.fromkeys(STREAMS, 0)

    def __enter__(self) -> Self:
        with httpx.Client(base_url=self._url) as http:
            for name in (*STREAMS, "churn"):
                http.put(f"/v1/stream/{name}", headers=TEXT)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _append(self, name: str) -> None:
        chance = random.Random(name)
        with httpx.Client(base_url=self._url) as http:
            while not self._ended.is_set():
                size = chance.choice([10, 100, 3000])
                body = f"{self.appended[name]:08d}".ljust(size, "x").encode()
                assert http.post(f"/v1/stream/{name}", headers=TEXT, content=body).is_success
                self.appended[name] += 1
                if chance.random() < 0.05:
                    http.delete("/v1/stream/churn")
                    http.put("/v1/stream/churn", headers=TEXT, content=b"y" * 3000)

    def wait_for(self, appends: int) -> None:
        while min(self.appended.values()) < appends:
            self._ended.wait(0.01)


def read(url: str, name: str, offset: str = "-1") -> bytes:
    body = b""
    while True:
        answer = httpx.get(f"{url}/v1/stream/{name}", params={"offset": offset})
        assert answer.status_code == 200, answer.text
        body += answer.content
        offset = answer.headers["stream-next-offset"]
        if "stream-up-to-date" in answer.headers:
            return body


def test_a_backup_under_load_restores_what_there_was_from_every_offset(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", SETTINGS)
    with server:
        with Writers(server.url) as writers:
            writers.wait_for(60)
            before = dict(writers.appended)
            tailrace("backup", str(tmp_path / "copy"), "--data", str(server.data))
            writers.wait_for(max(writers.appended.values()))
        whole = {name: read(server.url, name) for name in STREAMS}
    assert "nothing is damaged" in tailrace("check", "--data", str(tmp_path / "copy"))
    tailrace("restore", str(tmp_path / "copy"), "--data", str(tmp_path / "restored"))
    with Server(tmp_path / "restored", SETTINGS) as restored:
        for name in STREAMS:
            body = read(restored.url, name)
            assert whole[name].startswith(body)
            offsets, at = ["-1"], 0
            while at < len(body):
                answer = httpx.get(
                    f"{restored.url}/v1/stream/{name}", params={"offset": offsets[-1]}
                )
                at += len(answer.content)
                offsets.append(answer.headers["stream-next-offset"])
            for offset in offsets:
                assert body.endswith(read(restored.url, name, offset))
            assert len(body) >= 10 * before[name], "what was there before"
        assert httpx.post(f"{restored.url}/v1/stream/s/0", headers=TEXT, content=b"on").is_success


def test_a_backup_is_private_and_needs_a_new_directory(tmp_path: Path) -> None:
    with Server(tmp_path / "data", SETTINGS) as server:
        httpx.put(f"{server.url}/v1/stream/a", headers=TEXT, content=b"x" * 3000)
        tailrace("backup", str(tmp_path / "copy"), "--data", str(server.data))
        modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "copy").rglob("*")}
        assert modes == {0}
        said = tailrace("backup", str(tmp_path / "copy"), "--data", str(server.data), code=1)
        assert "exists and is not empty; choose a new directory" in said
        said = tailrace("restore", str(tmp_path / "copy"), "--data", str(server.data), code=1)
        assert "exists and is not empty" in said
    (tmp_path / "next.partial").mkdir()
    said = tailrace("backup", str(tmp_path / "next"), "--data", str(server.data), code=1)
    assert "left from a copy that was interrupted" in said


def largest(folder: Path) -> Path:
    return max(
        (path for path in folder.rglob("*") if path.is_file()), key=lambda p: p.stat().st_size
    )


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def damage_pages(data: Path) -> None:
    path = data / "tailrace.db"
    whole = bytearray(path.read_bytes())
    for page in range(2, len(whole) // 4096, 2):
        whole[page * 4096 : page * 4096 + 512] = random.Random(page).randbytes(512)
    path.write_bytes(whole)


def remove_entry(data: Path) -> None:
    with sqlite3.connect(data / "tailrace.db") as db:
        db.execute("DELETE FROM entries WHERE n = (SELECT max(n) - 1 FROM entries)")


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The data of a server with bodies, segments and many pages."""
    server = Server(tmp_path / "data", {**SETTINGS, "TAILRACE_COMPACT_INTERVAL": "0"})
    with server, httpx.Client() as http:
        for name in ("a", "b"):
            url = f"{server.url}/v1/stream/{name}"
            http.put(url, headers=TEXT)
            for _ in range(50):
                http.post(url, headers=TEXT, content=b"x" * 900)
            http.post(url, headers=TEXT, content=b"y" * 5000)
    env = "TAILRACE_SEGMENT_MAX_MESSAGES"
    subprocess.run(
        [sys.executable, "-m", "tailrace", "compact", "--data", server.data],
        env={"PATH": "", env: "20"},
        check=True,
        capture_output=True,
    )
    return server.data


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_pages, "disk image is malformed; restore the directory from a backup"),
        (remove_entry, "lacks 1 entries; restore the directory from a backup"),
        (lambda data: flip(largest(data / "bodies"), 7), "another checksum than when written"),
        (lambda data: largest(data / "bodies").unlink(), "is missing; restore this file"),
        (
            lambda data: flip(largest(data / "segments"), 7),
            "another checksum than when written; restore this file",
        ),
        (lambda data: largest(data / "segments").unlink(), "is missing; restore this file"),
    ],
    ids=["pages", "entry", "body", "missing body", "segment", "missing segment"],
)
def test_damage_is_named_with_the_fix(
    stopped: Path, damage: Callable[[Path], None], said: str
) -> None:
    assert "nothing is damaged" in tailrace("check", "--data", str(stopped))
    damage(stopped)
    assert said in tailrace("check", "--data", str(stopped), code=1)
    printed = json.loads(
        tailrace("check", "--json", "--data", str(stopped), code=1).splitlines()[0]
    )
    assert printed["findings"]


def test_a_damaged_database_does_not_start(stopped: Path) -> None:
    damage_pages(stopped)
    server = Server(stopped)
    with pytest.raises(AssertionError, match=r"is damaged.*tailrace restore"):
        server.start()
    assert "Traceback" not in server.output()


def test_a_damaged_backup_is_not_restored(stopped: Path, tmp_path: Path) -> None:
    tailrace("backup", str(tmp_path / "copy"), "--data", str(stopped))
    flip(largest(tmp_path / "copy" / "segments"), 7)
    said = tailrace("restore", str(tmp_path / "copy"), "--data", str(tmp_path / "new"), code=1)
    assert "the backup is damaged: segments/" in said
    assert not (tmp_path / "new").exists()
