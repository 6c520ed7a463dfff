"""Trusted proxies: the client address and the scheme that they report."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from tailrace.errors import BadSetting

FORWARDED_FOR = b"x-forwarded-for"
FORWARDED_PROTO = b"x-forwarded-proto"


class Proxies:
    """Trusted addresses and networks, separated by commas or spaces."""

    def __init__(self, text: str) -> None:
        try:
            self._networks = [ip_network(each) for each in text.replace(",", " ").split()]
        except ValueError as error:
            raise BadSetting(
                "TAILRACE_TRUSTED_PROXIES must list addresses and networks such as 10.0.0.0/8:"
                f" {error}"
            ) from None

    def __bool__(self) -> bool:
        return bool(self._networks)

    def client_address(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        """The address of the client: the last one reported that is not a trusted proxy."""
        address = peer
        reported = headers.get(FORWARDED_FOR, b"").decode("latin-1").split(",")
        while self._trusts(address) and reported:
            previous = _parse_address(reported.pop())
            if previous is None:
                break
            address = str(previous)
        return address

    def client_scheme(self, peer: str, headers: Mapping[bytes, bytes], scheme: str) -> str:
        """The scheme that the client used: the reported one if the peer is a trusted proxy."""
        reported = headers.get(FORWARDED_PROTO, b"").decode("latin-1").strip().lower()
        return reported if reported in ("http", "https") and self._trusts(peer) else scheme

    def _trusts(self, text: str) -> bool:
        address = _parse_address(text)
        if address is None:
            return False
        return any(address in network for network in self._networks)


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address with or without a port; an IPv4-mapped IPv6 address becomes IPv4."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
