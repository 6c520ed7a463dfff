"""Hosts and origins that a server takes requests from when it is open to this machine alone.

A page of any site can make its reader's browser send requests to loopback, and a name of that site
may resolve to it (DNS rebinding). Such requests name the site in `Host` or `Origin`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address

from tailrace.auth.origins import Origins
from tailrace.errors import BadSetting, NotAllowed

_NAME = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_PLACE = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")


class LocalHosts:
    """Loopback by any of its names and ports, hosts that a setting adds, and allowed origins."""

    def __init__(self, allowed_hosts: str, allowed_origins: str) -> None:
        self._any, self._added = _parsed(allowed_hosts)
        origins = Origins(allowed_origins)
        self._origins = None if origins.any else origins

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise NotAllowed for a request that a page of another site may have made."""
        self.check_host(headers)
        self.check_page(headers)

    def check_page(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise NotAllowed for a request of a page of another site."""
        if not self.takes_page(headers):
            raise NotAllowed(
                "this server is open to this machine alone, and the page is of another; name its"
                " origin in TAILRACE_ALLOWED_ORIGINS, or its host in TAILRACE_ALLOWED_HOSTS"
            )

    def check_host(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise NotAllowed for a request by a name that is not this machine's."""
        host = headers.get(b"host")
        if host is not None and not self._is_ours(host.decode("latin-1")):
            raise NotAllowed(
                "this server is open to this machine alone, and Host names another; ask for"
                " localhost, or name the host in TAILRACE_ALLOWED_HOSTS"
            )

    def takes_page(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request comes from no page at all, or from one that may send it."""
        given = headers.get(b"origin")
        if given is None:
            return True
        origin = given.decode("latin-1")
        if self._origins is not None and self._origins.allow(origin):
            return True
        scheme, _, place = origin.partition("://")
        return scheme.lower() in ("http", "https") and self._is_ours(place)

    def _is_ours(self, place: str) -> bool:
        """Whether `host` or `host:port` is a name of this machine."""
        if self._any:
            return True
        found = _PLACE.fullmatch(place.strip().lower())
        if found is None:
            return False
        name = found[1].removesuffix(".")
        return _is_loopback(name) or any(
            name == each or (each.startswith("*.") and name.endswith(each[1:]))
            for each in self._added
        )


def check_hosts(text: str) -> None:
    _parsed(text)


def _parsed(text: str) -> tuple[bool, tuple[str, ...]]:
    entries = tuple(text.lower().replace(",", " ").split())
    for each in entries:
        if each != "*" and not _NAME.fullmatch(each) and not _is_address(each):
            raise BadSetting(
                "TAILRACE_ALLOWED_HOSTS takes names without ports such as mybox.local or *.test,"
                f" or *; not {each!r}"
            )
    return "*" in entries, entries


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_address(text: str) -> bool:
    try:
        ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True
