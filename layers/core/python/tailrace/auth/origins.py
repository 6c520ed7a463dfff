"""Allowed origins: which web pages may use the server, by the `Origin` of their browser."""

from __future__ import annotations

import re
from typing import Final

from tailrace.errors import BadSetting

_BETWEEN: Final = re.compile(r"[,\s]+")
_ENTRY: Final = re.compile(r"(?:(https?)://)?((?:\*\.)?[a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


class Origins:
    """Origins such as `https://a.example`, `*.b.example` or `localhost:3000`.

    Without a scheme both http and https match, and a star matches any number of subdomains. An
    empty list, or `*`, allows every page."""

    def __init__(self, text: str) -> None:
        entries = tuple(filter(None, _BETWEEN.split(text.lower())))
        self.allow_all: Final = not entries or "*" in entries
        self._entries = () if self.allow_all else tuple(map(_parse_entry, entries))

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


def check_origins(text: str) -> None:
    """Raise BadSetting unless the text lists origins."""
    Origins(text)


def _parse_entry(entry: str) -> tuple[str, str]:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise BadSetting(
            "TAILRACE_ALLOWED_ORIGINS must list origins such as https://a.example or *.b.example,"
            f" or be *; it has {entry!r}"
        )
    return match[1] or "", f"{match[2]}{match[3] or ''}"
