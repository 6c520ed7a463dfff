"""Topics: the base of an event type and the values of its identifier, with dots between them.

In values, exactly `.`, `*`, `>` and `%` are percent-encoded, so a topic can be split again, and no
value looks like a wildcard.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

SEPARATOR: Final = "."
ANY: Final = "*"

_SPECIAL: Final = {".": "%2E", "*": "%2A", ">": "%3E", "%": "%25"}
_TO_ENCODE: Final = re.compile(r"[.*>%]")
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")


def encode(value: str) -> str:
    return _TO_ENCODE.sub(lambda match: _SPECIAL[match[0]], value)


def decode(token: str) -> str:
    """Decode a token; raises ValueError for malformed escapes and invalid UTF-8."""
    if "%" not in token:
        return token
    raw = token.encode()
    if raw.count(b"%") != len(_ESCAPE.findall(raw)):
        raise ValueError(f"'{token[:40]}' has a '%' without two hexadecimal digits")
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), raw).decode()


def join(base: str, values: Iterable[str]) -> str:
    return SEPARATOR.join([base, *map(encode, values)])


def split(topic: str) -> tuple[str, list[str]]:
    """The base and the values."""
    base, *tokens = topic.split(SEPARATOR)
    return base, [decode(token) for token in tokens]


def format_pattern(base: str, values: Sequence[str | None]) -> str:
    """Format a topic for display: values are not encoded, and None becomes a star."""
    return SEPARATOR.join([base, *(ANY if value is None else value for value in values)])
