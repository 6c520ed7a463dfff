"""Patterns of subscriptions: `*` is one segment of a path, `**` any number, all else is literal.

A stream that appears is compared with few patterns only: each is filed under its literal prefix,
the segments before its first wildcard, and a path can match only those filed under a prefix of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_WILD: Final = ("*", "**")


def matches(pattern: str, path: str) -> bool:
    """Whether a path matches a pattern; takes at most segments times segments steps."""
    segments = path.split("/")
    reached = {0}
    """The numbers of segments that the pattern so far can have matched."""
    for part in pattern.split("/"):
        if part == "**":
            reached = set(range(min(reached), len(segments) + 1))
        else:
            reached = {
                at + 1
                for at in reached
                if at < len(segments) and (part == "*" or part == segments[at])
            }
        if not reached:
            return False
    return len(segments) in reached


def literal_prefix(pattern: str) -> str:
    """Return the segments before the first wildcard."""
    literal: list[str] = []
    for part in pattern.split("/"):
        if part in _WILD:
            break
        literal.append(part)
    return "/".join(literal)


def prefixes(path: str) -> Iterator[str]:
    """Iterate over the literal prefixes of all patterns that a path could match."""
    yield ""
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)
    yield path
