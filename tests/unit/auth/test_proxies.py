"""Addresses of clients behind proxies."""

from __future__ import annotations

import pytest

from tailrace.auth.proxies import Proxies
from tailrace.errors import BadSetting


@pytest.mark.parametrize(
    ("peer", "reported", "client"),
    [
        ("10.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "198.51.100.1, 203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("::ffff:10.0.0.1", "[2001:db8::1]:443", "2001:db8::1"),
        ("10.0.0.1", "203.0.113.7:1234", "203.0.113.7"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "not an address", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
        ("", "198.51.100.1", ""),
    ],
)
def test_only_trusted_proxies_are_used(peer: str, reported: str, client: str) -> None:
    headers = {b"x-forwarded-for": reported.encode(), b"x-forwarded-proto": b"https"}
    proxies = Proxies("10.0.0.0/8 192.0.2.1")
    assert proxies.client_address(peer, headers) == client
    trusted = peer.endswith("10.0.0.1")
    assert proxies.client_scheme(peer, headers, "http") == ("https" if trusted else "http")


def test_no_proxy_is_trusted_by_default() -> None:
    assert not Proxies("")
    assert (
        Proxies("").client_address("127.0.0.1", {b"x-forwarded-for": b"203.0.113.7"}) == "127.0.0.1"
    )


def test_bad_proxies_are_named() -> None:
    with pytest.raises(BadSetting, match="TAILRACE_TRUSTED_PROXIES"):
        Proxies("10.0.0.0/99")
