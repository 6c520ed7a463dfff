"""What caches may keep, and for how long.

| answer | everybody may read it | the edge has checked who asks |
|---|---|---|
| a chunk that stays | `public, max-age=60` or more | `public, max-age=0, s-maxage=60` |
| the tail | `public, no-cache` | `public, no-cache` |
| a long-poll | `public, max-age=1` | `public, max-age=0, s-maxage=1` |

What is private, and came past no edge that checks, is `private, no-cache` in every case. The edge
checks each request before it looks into its cache, so it may share what is private among all who
may read it (`s-maxage`); a browser, which may have another user in a minute, asks anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tailrace.auth.authorizer import Decision
from tailrace.web.messages import RawHeaders

CHUNK_SECONDS: Final = 60
CHUNK: Final = b"public, max-age=%d, stale-while-revalidate=300"
"""A chunk that is followed by another one, or ends a closed stream, never changes."""

TAIL: Final = b"public, no-cache, stale-if-error=0"
"""The tail grows: a cache may keep it, but asks each time whether it still is the tail, and when it
gets no answer it does not say that an old one is."""

LIVE: Final = b"public, max-age=1, stale-if-error=0"
"""Long enough for a cache to give one answer to all who waited for it together."""

NO_STORE: Final = (b"cache-control", b"no-store")

_PRIVATE: Final = b"private, no-cache"
_MAX_AGE: Final = re.compile(rb"max-age=([0-9]+)(, stale-while-revalidate=[0-9]+)?")


def kept(headers: RawHeaders, decision: Decision) -> RawHeaders:
    """The headers of an answer as they are right for who was let pass."""
    if decision.private:
        return _each(headers, lambda caching: caching if caching == b"no-store" else _PRIVATE)
    if decision.reason == "edge":
        return _each(headers, lambda caching: _MAX_AGE.sub(rb"max-age=0, s-maxage=\1", caching))
    return headers


def _each(headers: RawHeaders, change: Callable[[bytes], bytes]) -> RawHeaders:
    return [(name, change(value) if name == b"cache-control" else value) for name, value in headers]
