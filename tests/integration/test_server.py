"""Where the server listens, and where it does not unless it is told who may come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from devtools.server import Server
from tailrace.errors import BadSetting
from tailrace.server import refuse_strangers
from tailrace.settings import Settings

ABROAD = ("0.0.0.0", "::", "192.0.2.7", "2001:db8::7", "streams.example", "")


@pytest.mark.parametrize("host", ABROAD)
def test_an_open_server_is_for_this_machine_alone(host: str) -> None:
    with pytest.raises(BadSetting, match=r"TAILRACE_SECRET.*TAILRACE_ACCESS=open"):
        refuse_strangers(Settings(host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_on_loopback_it_may_be_open(host: str) -> None:
    refuse_strangers(Settings(host=host))


@pytest.mark.parametrize(
    "policy",
    [
        {"secret": "s"},
        {"jwt_secret": "s"},
        {"public_streams": "true"},
        {"access": "open"},
        {"access": "closed"},
    ],
)
def test_elsewhere_it_takes_a_policy(policy: dict[str, Any]) -> None:
    for host in ABROAD:
        refuse_strangers(Settings(host=host, **policy))


def test_a_server_that_is_refused_ends_before_it_listens(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", {"TAILRACE_HOST": "0.0.0.0"})
    with pytest.raises(AssertionError, match=r"ended with 2(.|\n)*would let strangers"):
        server.start()
    assert not (tmp_path / "data").exists()


def test_the_data_directory_is_for_its_owner_alone(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        paths = [server.data, *server.data.iterdir()]
        assert {f"{path.name} {path.stat().st_mode & 0o077}" for path in paths} == {
            f"{name} 0"
            for name in (
                "data", "tailrace.db", "tailrace.db-wal", "tailrace.db-shm", "tailrace.id",
                "tailrace.lock", "bodies", "segments",
            )
        }  # fmt: skip


def test_a_server_whose_database_is_lost_ends_and_leaves_its_files(tmp_path: Path) -> None:
    """Only the operator knows whether a volume was not mounted, or data is to be given up."""
    server = Server(tmp_path / "data", {"TAILRACE_INLINE_BYTES": "1024"})
    with server:
        assert httpx.put(f"{server.url}/v1/stream/a", content=b"x" * 2000).status_code == 201
    database = (server.data / "tailrace.db").rename(tmp_path / "copy.db")
    with pytest.raises(AssertionError, match=r"ended with 1(.|\n)*restore the database"):
        server.start()
    database.rename(server.data / "tailrace.db")
    with server:
        assert httpx.get(f"{server.url}/v1/stream/a").content == b"x" * 2000


def test_an_append_that_cannot_be_stored_tells_no_path(tmp_path: Path) -> None:
    with Server(tmp_path / "data", {"TAILRACE_INLINE_BYTES": "1024"}) as server:
        text = {"content-type": "text/plain"}
        httpx.put(f"{server.url}/v1/stream/a", headers=text)
        (server.data / "bodies").rmdir()
        (server.data / "bodies").touch()
        answer = httpx.post(f"{server.url}/v1/stream/a", content=b"x" * 2000, headers=text)
        assert answer.status_code == 503
        told = answer.json()["error"]["message"]
        assert told == "the store could not commit: Not a directory"
        assert str(server.data / "bodies") in server.output()
