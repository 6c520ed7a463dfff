"""Starting the server: the addresses it refuses without access control, and its files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from devtools.server import Server
from tailrace.auth.keys import KEYS
from tailrace.errors import BadSetting
from tailrace.server import check_exposure
from tailrace.settings import Settings

SECRET = "sixteen bytes it".replace(" ", "-")
PUBLIC_HOSTS = ("0.0.0.0", "::", "192.0.2.7", "2001:db8::7", "streams.example", "")


@pytest.mark.parametrize("host", PUBLIC_HOSTS)
def test_a_public_address_needs_access_control(host: str) -> None:
    with pytest.raises(BadSetting, match=r"TAILRACE_SECRET.*TAILRACE_ACCESS=open"):
        check_exposure(Settings(host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_loopback_needs_no_access_control(host: str) -> None:
    check_exposure(Settings(host=host))


@pytest.mark.parametrize(
    "policy",
    [
        {"secret": SECRET},
        {"jwt_secret": SECRET},
        {"public_streams": "true"},
        {"access": "open"},
        {"access": "closed"},
    ],
)
def test_a_public_address_with_access_control_is_accepted(policy: dict[str, Any]) -> None:
    for host in PUBLIC_HOSTS:
        check_exposure(Settings(host=host, **policy))


def secrets(name: str, secret: str) -> dict[str, Any]:
    return {name: secret}


@pytest.mark.parametrize("name", KEYS)
def test_a_secret_that_can_be_guessed_is_refused_beyond_loopback(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    message = f"TAILRACE_{name.upper()} has a secret of fewer than 16 bytes"
    for secret in (SECRET[:15], f"{SECRET} {SECRET[:15]}"):
        settings = Settings(access="closed", **secrets(name, secret))
        with pytest.raises(BadSetting, match=message):
            check_exposure(replace(settings, host="0.0.0.0"))
        caplog.clear()
        check_exposure(settings)
        assert message in caplog.text
    caplog.clear()
    for secret in (SECRET, "none"):
        check_exposure(Settings(host="0.0.0.0", access="closed", **secrets(name, secret)))
    assert not caplog.text


def test_a_refused_address_ends_the_server_before_it_creates_files(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", {"TAILRACE_HOST": "0.0.0.0"})
    with pytest.raises(AssertionError, match=r"ended with 2(.|\n)*would let strangers"):
        server.start()
    assert not (tmp_path / "data").exists()


def test_only_the_owner_can_read_the_data_directory(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        paths = [server.data, *server.data.iterdir()]
        assert {f"{path.name} {path.stat().st_mode & 0o077}" for path in paths} == {
            f"{name} 0"
            for name in (
                "data", "tailrace.db", "tailrace.db-wal", "tailrace.db-shm", "tailrace.id",
                "tailrace.lock", "bodies", "segments",
            )
        }  # fmt: skip


def test_a_lost_database_ends_the_server_and_leaves_its_other_files(tmp_path: Path) -> None:
    """Only the operator knows whether a volume is not mounted or the data may be deleted."""
    server = Server(tmp_path / "data", {"TAILRACE_INLINE_BYTES": "1024"})
    with server:
        assert httpx.put(f"{server.url}/v1/stream/a", content=b"x" * 2000).status_code == 201
    database = (server.data / "tailrace.db").rename(tmp_path / "copy.db")
    with pytest.raises(AssertionError, match=r"ended with 1(.|\n)*restore the database"):
        server.start()
    database.rename(server.data / "tailrace.db")
    with server:
        assert httpx.get(f"{server.url}/v1/stream/a").content == b"x" * 2000


def test_an_error_of_the_store_shows_no_path(tmp_path: Path) -> None:
    with Server(tmp_path / "data", {"TAILRACE_INLINE_BYTES": "1024"}) as server:
        text = {"content-type": "text/plain"}
        httpx.put(f"{server.url}/v1/stream/a", headers=text)
        (server.data / "bodies").rmdir()
        (server.data / "bodies").touch()
        answer = httpx.post(f"{server.url}/v1/stream/a", content=b"x" * 2000, headers=text)
        assert answer.status_code == 503
        message = answer.json()["error"]["message"]
        assert message == "the store could not commit: Not a directory"
        assert str(server.data / "bodies") in server.output()
