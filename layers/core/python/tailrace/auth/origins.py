"""Which web pages may use the server: allowed origins, and the hosts of an open local server.

A page of any site can make a browser send requests to loopback, and a name of that site may resolve
to it (DNS rebinding). Such requests name the site in `Host` or `Origin`, so a server that is open
only to this machine checks both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from tailrace.errors import BadSetting, NotAllowed

_BETWEEN: Final = re.compile(r"[,\s]+")
_ORIGIN: Final = re.compile(
    r"(?:(https?)://)?((?:\*\.)?[a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?"
)
_HOST: Final = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_HOST_AND_PORT: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")


class Origins:
    """Origins such as `https://a.example`, `*.b.example` or `localhost:3000`.

    Without a scheme both http and https match, and a star matches any number of subdomains. An
    empty list, or `*`, allows every page."""

    def __init__(self, text: str) -> None:
        entries = tuple(filter(None, _BETWEEN.split(text.lower())))
        self.allow_all: Final = not entries or "*" in entries
        self._entries = () if self.allow_all else tuple(map(_parse_origin, entries))

    def expand(self) -> list[str]:
        """All origins with their schemes; a star if every page is allowed."""
        if self.allow_all:
            return ["*"]
        return [
            f"{scheme}://{host}"
            for required, host in self._entries
            for scheme in ([required] if required else ["http", "https"])
        ]

    def allows(self, origin: str) -> bool:
        if self.allow_all:
            return True
        scheme, separator, host_and_port = origin.lower().partition("://")
        return bool(separator) and any(
            required in ("", scheme)
            and (
                host_and_port == host or (host.startswith("*") and host_and_port.endswith(host[1:]))
            )
            for required, host in self._entries
        )


class LocalHosts:
    """Accepts loopback by any of its names and ports, configured hosts, and allowed origins."""

    def __init__(self, allowed_hosts: str, allowed_origins: str) -> None:
        self._any, self._allowed = _parse_hosts(allowed_hosts)
        self._is_local: Final = lru_cache(maxsize=1024)(self._names_this_machine)
        origins = Origins(allowed_origins)
        self._origins = None if origins.allow_all else origins

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise NotAllowed for a request that a page of another site may have sent."""
        self.check_host(headers)
        self.check_page(headers)

    def check_page(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise NotAllowed for a request from a page of another site."""
        if not self.allows_page(headers):
            raise NotAllowed(
                "this server is open only to this machine, and the page is from another site; add"
                " its origin to TAILRACE_ALLOWED_ORIGINS, or its host to TAILRACE_ALLOWED_HOSTS"
            )

    def check_host(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise NotAllowed for a request whose `Host` is not this machine."""
        if not self.accepts_host(headers):
            raise NotAllowed(
                "this server is open only to this machine, and Host names another; use localhost,"
                " or add the host to TAILRACE_ALLOWED_HOSTS"
            )

    def accepts_host(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether `Host`, if there is one, is this machine."""
        host = headers.get(b"host")
        return host is None or self._is_local(host.decode("latin-1"))

    def allows_page(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request comes from a program, or from a page that may send it."""
        header = headers.get(b"origin")
        if header is None:
            return True
        origin = header.decode("latin-1")
        if self._origins is not None and self._origins.allows(origin):
            return True
        scheme, _, host_and_port = origin.partition("://")
        return scheme.lower() in ("http", "https") and self._is_local(host_and_port)

    def _names_this_machine(self, host_and_port: str) -> bool:
        """Whether `host` or `host:port` is this machine or an allowed host."""
        if self._any:
            return True
        match = _HOST_AND_PORT.fullmatch(host_and_port.strip().lower())
        if match is None:
            return False
        name = match[1].removesuffix(".")
        return is_loopback(name) or any(
            name == each or (each.startswith("*.") and name.endswith(each[1:]))
            for each in self._allowed
        )


def check_hosts(text: str) -> None:
    """Raise BadSetting unless the text lists host names."""
    _parse_hosts(text)


def _parse_hosts(text: str) -> tuple[bool, tuple[str, ...]]:
    entries = tuple(text.lower().replace(",", " ").split())
    for each in entries:
        if each != "*" and not _HOST.fullmatch(each) and not _is_address(each):
            raise BadSetting(
                "TAILRACE_ALLOWED_HOSTS must list host names without ports, such as mybox.local or"
                f" *.test, or be *; it has {each!r}"
            )
    return "*" in entries, entries


def is_loopback(name: str) -> bool:
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


def _parse_origin(entry: str) -> tuple[str, str]:
    match = _ORIGIN.fullmatch(entry)
    if match is None:
        raise BadSetting(
            "TAILRACE_ALLOWED_ORIGINS must list origins such as https://a.example or *.b.example,"
            f" or be *; it has {entry!r}"
        )
    return match[1] or "", f"{match[2]}{match[3] or ''}"
