"""Patterns of subscriptions: `*` is one segment of a path, `**` any number, all else is literal.

A stream that appears is compared with few patterns only: each is filed under its literal prefix,
the segments before its first wildcard, and a path can match only those filed under a prefix of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

_WILD: Final = ("*", "**")

K = TypeVar("K")


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


class PatternIndex(Generic[K]):
    """Patterns as a tree of their segments: a path is compared with those parts only that it can
    match, however many patterns there are."""

    def __init__(self) -> None:
        self._root: _Node[K] = _Node()

    def add(self, pattern: str, key: K) -> None:
        node = self._root
        for part in pattern.split("/"):
            node = node.children.setdefault(part, _Node())
        node.keys.add(key)

    def remove(self, pattern: str, key: K) -> None:
        node, way = self._root, []
        for part in pattern.split("/"):
            way.append((node, part))
            following = node.children.get(part)
            if following is None:
                return
            node = following
        node.keys.discard(key)
        for parent, part in reversed(way):
            child = parent.children[part]
            if child.keys or child.children:
                break
            del parent.children[part]

    def literal_prefixes(self) -> list[str]:
        """Beginnings of paths: each path that matches begins with exactly one of them."""
        found: list[str] = []
        for prefix in sorted(self._root.literal_prefixes([])):
            if not found or not prefix.startswith(found[-1]):
                found.append(prefix)
        return found

    def match(self, path: str) -> set[K]:
        """The keys of all patterns that match a path."""
        reached: dict[_Node[K], bool] = {}
        """Where patterns may be after the segments so far, and whether that is after a `**`, which
        the next segment may belong to, too."""
        _reach(reached, self._root, is_deep=False)
        for segment in path.split("/"):
            before, reached = reached, {}
            for node, is_deep in before.items():
                if is_deep:
                    _reach(reached, node, is_deep=True)
                for part in (segment, "*"):
                    # A segment that looks like a wildcard is found as one, once.
                    child = node.children.get(part) if part != "**" else None
                    if child is not None:
                        _reach(reached, child, is_deep=False)
        return {key for node in reached for key in node.keys}


class _Node(Generic[K]):
    __slots__ = ("children", "keys")

    def __init__(self) -> None:
        self.children: dict[str, _Node[K]] = {}
        self.keys: set[K] = set()

    def literal_prefixes(self, segments: list[str]) -> Iterator[str]:
        if self.keys or any(part in self.children for part in _WILD):
            yield "/".join(segments)
            return
        for part, child in self.children.items():
            yield from child.literal_prefixes([*segments, part])


def _reach(reached: dict[_Node[K], bool], node: _Node[K], *, is_deep: bool) -> None:
    """Add a node, and those that follow it by `**`, which may be no segment at all."""
    while not reached.get(node, False):
        if node in reached and not is_deep:
            return
        reached[node] = is_deep
        following = node.children.get("**")
        if following is None:
            return
        node, is_deep = following, True
