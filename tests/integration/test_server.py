"""Where the server listens, and where it does not unless it is told who may come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    with Server(tmp_path / "data"):
        assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
