"""Which web pages may use the server, by the origin that their browser names."""

from __future__ import annotations

import re
from typing import Final

from tailrace.errors import BadSetting

_BETWEEN: Final = re.compile(r"[,\s]+")
_ENTRY: Final = re.compile(r"(?:(https?)://)?((?:\*\.)?[a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


class Origins:
    """Origins such as `https://a.example`, `*.b.example` or `localhost:3000`: without a scheme
    both count, and a star stands for any number of subdomains. None at all, or `*`: every page."""

    def __init__(self, text: str) -> None:
        entries = tuple(filter(None, _BETWEEN.split(text.lower())))
        self.any: Final = not entries or "*" in entries
        self._entries = () if self.any else tuple(map(_parsed, entries))

    def listed(self) -> list[str]:
        """All of them with their schemes; a star for any."""
        if self.any:
            return ["*"]
        return [
            f"{scheme}://{host}"
            for wanted, host in self._entries
            for scheme in ([wanted] if wanted else ["http", "https"])
        ]

    def allow(self, origin: str) -> bool:
        if self.any:
            return True
        scheme, mark, place = origin.lower().partition("://")
        return bool(mark) and any(
            wanted in ("", scheme)
            and (place == host or (host.startswith("*") and place.endswith(host[1:])))
            for wanted, host in self._entries
        )


def check_origins(text: str) -> None:
    Origins(text)


def _parsed(entry: str) -> tuple[str, str]:
    found = _ENTRY.fullmatch(entry)
    if found is None:
        raise BadSetting(
            "TAILRACE_ALLOWED_ORIGINS takes origins such as https://a.example, *.b.example or *;"
            f" not {entry!r}"
        )
    return found[1] or "", f"{found[2]}{found[3] or ''}"
