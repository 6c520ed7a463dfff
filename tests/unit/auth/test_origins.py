"""Hosts and pages accepted by a server that is open only to its machine."""

from __future__ import annotations

import pytest

from tailrace.auth.origins import LocalHosts, check_hosts
from tailrace.errors import BadSetting, NotAllowed

LOOPBACK = [
    "localhost", "localhost:4437", "LOCALHOST", "localhost.", "a.b.localhost:1", "127.0.0.1:4437",
    "127.9.9.9", "[::1]", "[::1]:80",
]  # fmt: skip
FOREIGN = [
    "evil.example", "evil.example:4437", "localhost.evil.example", "127.0.0.1.evil.example",
    "evil-localhost", "0.0.0.0", "[::]", "10.0.0.1", "127.0.0.1@evil.example", "localhost/x",
    "localhost:x", "", "localhost, evil.example", "mybox.local", "[::ffff:8.8.8.8]",
]  # fmt: skip


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_is_accepted_by_any_name(host: str) -> None:
    hosts = LocalHosts("", "")
    hosts.check({b"host": host.encode(), b"origin": f"http://{host}".encode()})
    hosts.check({b"origin": f"https://{host}".encode()})


@pytest.mark.parametrize("host", FOREIGN)
def test_other_hosts_and_their_pages_are_refused(host: str) -> None:
    hosts = LocalHosts("", "")
    with pytest.raises(NotAllowed, match="ALLOWED_HOSTS"):
        hosts.check({b"host": host.encode()})
    with pytest.raises(NotAllowed, match="ALLOWED_ORIGINS"):
        hosts.check({b"host": b"localhost", b"origin": f"http://{host}".encode()})


@pytest.mark.parametrize("origin", [b"null", b"file://", b"localhost", b"ftp://localhost", b""])
def test_pages_without_a_host_are_refused(origin: bytes) -> None:
    with pytest.raises(NotAllowed):
        LocalHosts("", "").check({b"origin": origin})


def test_requests_without_host_and_origin_are_accepted() -> None:
    LocalHosts("", "").check({})


def test_settings_add_hosts_and_origins() -> None:
    hosts = LocalHosts("mybox.local, *.test [2001:db8::1]", "https://app.example")
    for host in (b"mybox.local:4437", b"a.b.test", b"localhost"):
        hosts.check({b"host": host, b"origin": b"http://" + host})
    hosts.check({b"host": b"localhost", b"origin": b"https://app.example"})
    for headers in (
        {b"host": b"app.example"},
        {b"host": b"test"},
        {b"origin": b"http://app.example"},
    ):
        with pytest.raises(NotAllowed):
            hosts.check(headers)
    LocalHosts("*", "").check({b"host": b"any.example", b"origin": b"https://any.example"})


@pytest.mark.parametrize("text", ["http://a.example", "a.example:80", "a b/c", "*.*.x"])
def test_bad_hosts_are_named(text: str) -> None:
    with pytest.raises(BadSetting, match="TAILRACE_ALLOWED_HOSTS"):
        check_hosts(text)
