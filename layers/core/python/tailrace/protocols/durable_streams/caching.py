"""Caching of reads: entity tags, cursors of live reads, and Cache-Control.

| answer | public stream | authorized by the edge |
|---|---|---|
| a complete chunk | `public, max-age=60` or more | `public, max-age=0, s-maxage=60` |
| the tail | `public, no-cache` | `public, no-cache` |
| a long-poll with data | `public, max-age=1, s-maxage=2` | `public, max-age=0, s-maxage=2` |
| an empty long-poll | `public, max-age=1` | `public, max-age=0, s-maxage=1` |

Answers of private streams that the edge has not authorized are `private, no-cache`. The edge
authorizes each request before it looks into its cache, so its cache may share an answer among all
authorized readers (`s-maxage`). A browser, which may soon have another user, must revalidate.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tailrace.auth.authorizer import Decision
from tailrace.limits import CURSOR_DIGITS
from tailrace.log.offsets import Position
from tailrace.log.state import Config
from tailrace.web.messages import RawHeaders

_TAG = re.compile(r'(?:^|,)[ \t]*(?:W/)?"([^"]*)"[ \t]*(?=,|$)')


def etag(
    incarnation: int, start: int, end: int, *, tail: bool, closed: bool, encoding: str = ""
) -> str:
    """A strong tag. `start`, `end`: the size of the stream before and after the data.

    The same bytes have another tag while they are the tail and when the stream is closed, for the
    answer says so. A compressed answer is another representation, so it has its own, too.
    """
    mark = ":c" if closed else ":t" if tail else ""
    suffix = f";{encoding}" if encoding else ""
    return f'"{incarnation:x}:{start}:{end}{mark}{suffix}"'


def append_tag(next_offset: str) -> bytes:
    """The tag of a stream's end, for `If-Match` of the next append: unlike that of any read."""
    return b'"%b"' % next_offset.encode()


def cache_tag(incarnation: int) -> str:
    return f"s-{incarnation:016x}"


def matches(if_none_match: str, tag: str) -> bool:
    """Whether one of the tags a client holds is `tag`, compared weakly as RFC 9110 asks."""
    if if_none_match.strip() == "*":
        return True
    return tag.strip('"') in _TAG.findall(if_none_match)


EPOCH_MS: Final = 1_728_432_000_000  # 2024-10-09T00:00:00Z
INTERVAL_S: Final = 20


def next_cursor(held: str | None, now_ms: int, shared_s: float = 0) -> int:
    """The cursor for an answer to a reader that sent `held`.

    `shared_s`: 0, or the length of the intervals in which the cache in front counts: then `held` is
    what it has made of the cursors of its readers, and it gives each a greater one than it held.
    Such an answer is a step or two ahead of the time if its key would be found again now."""
    current = (now_ms - EPOCH_MS) // (INTERVAL_S * 1000)
    if not held or len(held) > CURSOR_DIGITS or not (held.isascii() and held.isdigit()):
        return current
    if shared_s:
        ahead = int(held) - (now_ms - EPOCH_MS) // int(shared_s * 1000)
        return current + min(max(ahead + 1, 0), 2)
    if int(held) < current:
        return current
    return int(held) + 1


CHUNK_SECONDS: Final = 60
CHUNK: Final = b"public, max-age=%d, stale-while-revalidate=300"
"""Of a complete chunk: one that another chunk follows, or that ends a closed stream."""

TAIL: Final = b"public, no-cache, stale-if-error=0"
"""Of the tail, which grows: a cache revalidates it each time, and serves no old one on errors."""

LIVE_SECONDS: Final = 1
LIVE: Final = b"public, max-age=%d, stale-if-error=0" % LIVE_SECONDS
"""Of long-polls: a cache can give one answer to all clients that wait for the same data."""

LIVE_DATA: Final = b"public, max-age=1, s-maxage=%d, stale-if-error=0"
"""Of long-polls with data, which is what follows their offset: readers that come later get it from
a shared cache, and a browser asks again."""


def is_ambiguous(start: Position, config: Config) -> bool:
    """Whether a read could as well be of a later stream of the same name.

    The position of other reads has an epoch, which the next stream of that name does not accept.
    Forks share that of their source, so that a later fork of it would."""
    return start.epoch == 0 or config.fork is not None


NO_STORE: Final = (b"cache-control", b"no-store")

_PRIVATE: Final = b"private, no-cache"
_MAX_AGE: Final = re.compile(
    rb"max-age=([0-9]+)(?:, s-maxage=([0-9]+))?(, stale-while-revalidate=[0-9]+)?"
)


def apply_cache_policy(headers: RawHeaders, decision: Decision) -> RawHeaders:
    """Restrict Cache-Control to the caches that may share the answer under a decision."""
    if decision.private:
        return _map_cache_control(
            headers, lambda value: value if value == b"no-store" else _PRIVATE
        )
    if decision.reason == "edge":
        return _map_cache_control(
            headers, lambda value: _MAX_AGE.sub(_share_only_at_the_edge, value)
        )
    return headers


def _share_only_at_the_edge(age: re.Match[bytes]) -> bytes:
    return b"max-age=0, s-maxage=%b" % (age[2] or age[1])


def _map_cache_control(headers: RawHeaders, change: Callable[[bytes], bytes]) -> RawHeaders:
    return [(name, change(value) if name == b"cache-control" else value) for name, value in headers]
