"""Client addresses as trusted proxies report them."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from tailrace.errors import BadSetting

FORWARDED_FOR = b"x-forwarded-for"
FORWARDED_PROTO = b"x-forwarded-proto"


class Proxies:
    """Proxies whose word counts: addresses and networks, with commas or spaces between."""

    def __init__(self, text: str) -> None:
        try:
            self._networks = [ip_network(each) for each in text.replace(",", " ").split()]
        except ValueError as error:
            raise BadSetting(
                f"TAILRACE_TRUSTED_PROXIES takes addresses and networks such as 10.0.0.0/8: {error}"
            ) from None

    def __bool__(self) -> bool:
        return bool(self._networks)

    def client(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        """The address of the client: the last one in the list that is no trusted proxy's."""
        found = peer
        reported = headers.get(FORWARDED_FOR, b"").decode("latin-1").split(",")
        while self._trusts(found) and reported:
            before = _address(reported.pop())
            if before is None:
                break
            found = str(before)
        return found

    def scheme(self, peer: str, headers: Mapping[bytes, bytes], used: str) -> str:
        """The scheme that the client used, where a trusted proxy says so."""
        reported = headers.get(FORWARDED_PROTO, b"").decode("latin-1").strip().lower()
        return reported if reported in ("http", "https") and self._trusts(peer) else used

    def _trusts(self, text: str) -> bool:
        address = _address(text)
        if address is None:
            return False
        return any(address in network for network in self._networks)


def check_proxies(text: str) -> None:
    Proxies(text)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """An address, with or without a port; an IPv4 address inside of IPv6 counts as that."""
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
