"""Entity tags: which bytes of which incarnation, and whether they are the last ones.

Cache tags: which incarnation, for a cache that can forget all that it has of one."""

from __future__ import annotations

import re

_TAG = re.compile(r'(?:^|,)[ \t]*(?:W/)?"([^"]*)"[ \t]*(?=,|$)')


def etag(
    incarnation: int, start: int, end: int, *, tail: bool, closed: bool, encoding: str = ""
) -> str:
    """A strong tag.

    The same bytes have another tag while they are the tail and when the stream is closed, for the
    answer says so. A compressed answer is another representation, so it has its own, too.
    """
    mark = ":c" if closed else ":t" if tail else ""
    suffix = f";{encoding}" if encoding else ""
    return f'"{incarnation:x}:{start}:{end}{mark}{suffix}"'


def cache_tag(incarnation: int) -> str:
    return f"s-{incarnation:016x}"


def matches(if_none_match: str, tag: str) -> bool:
    """Whether one of the tags a client holds is `tag`, compared weakly as RFC 9110 asks."""
    if if_none_match.strip() == "*":
        return True
    return tag.strip('"') in _TAG.findall(if_none_match)
