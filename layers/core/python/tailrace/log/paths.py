"""Stream paths, one spelling for each stream however it was encoded; and patterns of paths.

In a pattern `*` matches anything within one segment, `**` matches anything. It is written like the
path of a URL; characters that a URL has to encode may also be written unencoded. A literal star is
`%2A`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from tailrace.errors import BadPath, PathTooLong
from tailrace.limits import PATH_BYTES

SAFE: Final = "!$&'()*+,;=:@~"
"""Characters that a path holds unencoded, besides letters, digits and `-._`."""


RESERVED: Final = "__ds"
"""The first segment under which the protocol's own endpoints live."""

_PLAIN = re.compile(r"[A-Za-z0-9_~!$&'()*+,;=:@-]+(?:[./][A-Za-z0-9_~!$&'()*+,;=:@-]+)*")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")

_BETWEEN: Final = re.compile(r"[,\s]+")
_STARS: Final = re.compile(r"(\*+)")
_UNENCODED: Final = re.compile(rf"[A-Za-z0-9._/{re.escape(SAFE)}-]*")


def canonical(path: str) -> str:
    if len(path) > 3 * PATH_BYTES:
        raise PathTooLong(f"a stream's path has at most {PATH_BYTES} bytes")
    if not _PLAIN.fullmatch(path):
        path = "/".join(map(_canonical_segment, path.split("/")))
    if not path:
        raise BadPath("name the stream: its path is empty")
    if len(path) > PATH_BYTES:
        raise PathTooLong(f"a stream's path has at most {PATH_BYTES} bytes")
    return path


def _canonical_segment(segment: str) -> str:
    if _BROKEN_ESCAPE.search(segment):
        raise BadPath("the path has a '%' that is not followed by two hexadecimal digits")
    try:
        text = unquote_to_bytes(segment.encode("latin-1")).decode("utf-8")
    except UnicodeDecodeError:
        raise BadPath("the path is not UTF-8 when its percent-encoding is undone") from None
    if "\0" in text:
        raise BadPath("the path has a zero byte, which ends a path in many programs")
    if text in (".", ".."):
        raise BadPath("the path has a '.' or '..' segment, which proxies resolve differently")
    return quote(text, safe=SAFE)


def encode_name(name: str) -> str:
    """Encode a stream's name as its path; in a name, only `/` separates segments."""
    return quote(name, safe=f"/{SAFE}")


class Rule(NamedTuple):
    text: str
    """The whole rule, for error messages."""
    pattern: str
    """Empty when the rule has no `=`."""
    value: str


def parse_rules(text: str) -> Iterator[Rule]:
    """Split a setting into its rules, without checking patterns or values."""
    for rule in filter(None, map(str.strip, text.split(";"))):
        pattern, _, value = (part.strip() for part in rule.rpartition("="))
        yield Rule(rule, pattern, value)


def fits(pattern: str, path: str) -> bool:
    """Whether a path matches a pattern.

    Most patterns need no regular expression, which is slow to compile: there may be one pattern
    per user."""
    prefix, star, rest = pattern.partition("*")
    if rest not in ("", "*"):
        return compile_pattern(pattern).fullmatch(path) is not None
    start = encode(prefix)
    if not star:
        return path == start
    return path.startswith(start) and (rest == "*" or "/" not in path[len(start) :])


def prefix_of(pattern: str) -> str:
    """Return what all paths that match a pattern begin with."""
    return encode(pattern.partition("*")[0])


class Patterns(NamedTuple):
    each: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Patterns:
        """Parse patterns separated by commas or white space; a comma in a path is `%2C`."""
        return cls(tuple(filter(None, _BETWEEN.split(text))))

    def matches(self, path: str) -> bool:
        return any(fits(pattern, path) for pattern in self.each)

    def covers(self, prefix: str) -> bool:
        """Whether one of the patterns matches every path that begins with the prefix."""
        return any(pattern.endswith("**") and fits(pattern, prefix) for pattern in self.each)

    def includes(self, pattern: str) -> bool:
        """Whether one of the patterns matches every path that a pattern of whole segments does, as
        far as that is plain: it is the same, or has a double star at the end of its beginning."""
        if "*" not in pattern:
            return self.matches(pattern)
        return pattern in self.each or self.covers(prefix_of(pattern))


EVERYTHING: Final = Patterns(("**",))
NOTHING: Final = Patterns(())


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern to a regular expression for the whole path.

    Atomic groups (`(?>`) stop a search from trying a later position for the text after a star: it
    could not match there either. So no pattern takes more than quadratic time, and one that an
    issuer of tokens builds from a user's name cannot keep the server busy."""
    *before, last = _split_at_stars(pattern)
    runs = map(_run, before)
    parts = [f"(?>.*?{run})" if place else run for place, run in enumerate(runs)]
    parts += [".*" if before else "", _run(last[:-1]), "[^/]*" if last[1:] else "", last[-1]]
    return re.compile("".join(parts), re.DOTALL)


def _split_at_stars(pattern: str) -> list[list[str]]:
    """Split at double stars, and each part at single stars."""
    first, *rest = _STARS.split(pattern)
    chunks = [[_escape(first)]]
    for stars, text in zip(rest[::2], rest[1::2], strict=True):
        if len(stars) > 1:
            chunks.append([])
        chunks[-1].append(_escape(text))
    return chunks


def _run(texts: list[str]) -> str:
    return "".join(f"(?>[^/]*?{text})" if place else text for place, text in enumerate(texts))


def _escape(text: str) -> str:
    return re.escape(encode(text))


def encode(text: str) -> str:
    """Encode text as in a path, whether or not it was encoded."""
    if _UNENCODED.fullmatch(text):
        return text
    segments = text.encode(errors="surrogateescape").split(b"/")
    return "/".join(quote(unquote_to_bytes(each), safe=SAFE) for each in segments)
