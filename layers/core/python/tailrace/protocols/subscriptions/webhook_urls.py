"""URLs of webhooks: which ones a subscription may name, and which addresses they may lead to.

A server that sends requests for its clients can be made to send them to machines that only it can
reach. A URL therefore has one spelling, with https and a public name or address; and every address
that its name resolves to has to be public.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, NamedTuple, TypeAlias

from tailrace.errors import WebhookUrlRejected
from tailrace.limits import WEBHOOK_URL_BYTES

Address: TypeAlias = IPv4Address | IPv6Address

PORTS: Final = frozenset((443, 8443))

_URL: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)"
    r"(?P<query>\?[^#]*)?(?P<fragment>#.*)?"
)
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""How the last label of an IPv4 address looks, in any of the spellings that some client accepts."""
_CANONICAL_IPV4: Final = re.compile(r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})")
_TARGET: Final = re.compile(r"(?:[A-Za-z0-9._~:/?@!$&'()*+,;=\[\]-]|%[0-9A-Fa-f]{2})*")

_LOCAL_NAMES: Final = (
    "localhost", "local", "internal", "intranet", "lan", "home", "corp", "private", "home.arpa",
    "localdomain", "arpa", "onion",
)  # fmt: skip
"""Domains that no public name is in."""

_REFUSED_IPV4: Final = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by carriers; a cloud's metadata service
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # a cloud's metadata service at a public address
            "169.254.0.0/16",  # link-local; metadata services, credentials of containers
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments; a cloud's metadata service
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved; broadcast
        ),
    )
)

_LOOPBACK_IPV4: Final = ip_network("127.0.0.0/8")
_LOOPBACK_IPV6: Final = IPv6Address("::1")

_PUBLIC_IPV6: Final = ip_network("2000::/3")
"""All that is assigned. Outside are loopback, link-local, unique local, multicast and unspecified
addresses, and IPv4 addresses mapped, compatible, translated (SIIT) and behind NAT64."""

_REFUSED_IPV6: Final = tuple(
    map(
        ip_network,
        (
            "2001::/23",  # protocol assignments; Teredo, which contains an IPv4 address
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which contains an IPv4 address
            "3fff::/20",  # documentation
        ),
    )
)


class WebhookUrl(NamedTuple):
    """A URL that passed the rules; nothing was resolved yet."""

    secure: bool
    host: str
    """In lower case; an IPv6 address without its brackets."""
    port: int
    target: str
    """Path and query, as they are sent."""
    loopback: bool
    """A receiver on this machine, for development: it may be at loopback addresses, and only
    there."""

    @property
    def authority(self) -> str:
        """The value of `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    def may_connect_to(self, address: Address) -> bool:
        return is_loopback(address) if self.loopback else is_public(address)


def parse_webhook_url(url: str, *, allow_loopback: bool) -> WebhookUrl:
    """Parse a URL, or raise `WebhookUrlRejected`.

    `allow_loopback`: `localhost`, `127.x.x.x` and `[::1]` are allowed, also without TLS and at any
    port."""
    if len(url) > WEBHOOK_URL_BYTES:
        raise WebhookUrlRejected(f"the webhook URL has more than {WEBHOOK_URL_BYTES} bytes")
    if not (url.isascii() and url.isprintable()) or " " in url or "\\" in url:
        raise WebhookUrlRejected(
            "the webhook URL must be ASCII without spaces and backslashes: percent-encode its"
            " path, and write a host of other letters as xn--"
        )
    parts = _URL.fullmatch(url)
    scheme = parts["scheme"].lower() if parts else ""
    if parts is None or scheme not in ("http", "https"):
        raise WebhookUrlRejected("the webhook URL must be an https URL")
    if parts["fragment"] is not None:
        raise WebhookUrlRejected("the webhook URL must not have a fragment")
    if "@" in parts["authority"]:
        raise WebhookUrlRejected("the webhook URL must not contain credentials")
    if not _TARGET.fullmatch(target := parts["path"] + (parts["query"] or "")):
        raise WebhookUrlRejected("the path of the webhook URL is not percent-encoded")
    host, port = _split_authority(parts["authority"].lower())
    address = _parse_host(host)
    secure = scheme == "https"
    number = port or (443 if secure else 80)
    target = target if target.startswith("/") else f"/{target}"
    loopback = is_loopback(address) if address else host == "localhost"
    if loopback and allow_loopback:
        return WebhookUrl(secure, str(address or host), number, target, loopback=True)
    if not secure:
        raise WebhookUrlRejected("the webhook URL must use https")
    if number not in PORTS:
        raise WebhookUrlRejected(
            f"the port of the webhook URL must be one of {', '.join(map(str, sorted(PORTS)))}"
        )
    if not (is_public(address) if address else _is_public_name(host)):
        raise WebhookUrlRejected("the host of the webhook URL is not public")
    return WebhookUrl(secure, str(address or host), number, target, loopback=False)


def is_public(address: Address) -> bool:
    """Whether an address is that of a machine on the public internet."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _REFUSED_IPV4)
    return (
        address.scope_id is None
        and address in _PUBLIC_IPV6
        and not any(address in network for network in _REFUSED_IPV6)
    )


def is_loopback(address: Address) -> bool:
    # Not `address.is_loopback`, which says so of mapped IPv4 addresses in some versions of Python.
    return address in _LOOPBACK_IPV4 or address == _LOOPBACK_IPV6


def _split_authority(authority: str) -> tuple[str, int | None]:
    """Split into host, with the brackets of an IPv6 address, and port."""
    end = authority.find("]") + 1
    host, colon, port = authority[end:].partition(":")
    if not colon:
        return authority, None
    if not _PORT.fullmatch(port) or int(port) > 65535:
        raise WebhookUrlRejected("the port of the webhook URL is not a port")
    return authority[:end] + host, int(port)


def _parse_host(host: str) -> Address | None:
    """The address that a host is, None for a name; raise `WebhookUrlRejected` for other
    spellings."""
    rejected = WebhookUrlRejected("the host of the webhook URL is not a host name or an IP address")
    if host.startswith("["):
        try:
            # No zone, which is meaningful on one machine only.
            address = None if "%" in host else ip_address(host[1:-1])
        except ValueError:
            address = None
        if not isinstance(address, IPv6Address) or not host.endswith("]"):
            raise rejected
        return address
    labels = host.split(".")
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise rejected
    if not _NUMBER.fullmatch(labels[-1]):
        return None
    if not _CANONICAL_IPV4.fullmatch(host) or any(int(label) > 255 for label in labels):
        raise rejected
    return IPv4Address(host)


def _is_public_name(host: str) -> bool:
    return "." in host and not any(f".{host}".endswith(f".{name}") for name in _LOCAL_NAMES)
