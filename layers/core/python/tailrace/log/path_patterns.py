"""Patterns of paths: `*` is anything within one segment, `**` is anything at all.

A pattern is written like the path in a URL; what a URL would have to encode may also stand as it
reads. A star that means itself is `%2A`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

SAFE: Final = "!$&'()*+,;=:@~"
"""What a path holds as it is, besides letters, digits and `-._`."""

_BETWEEN: Final = re.compile(r"[,\s]+")
_STARS: Final = re.compile(r"(\*+)")
_PLAIN: Final = re.compile(rf"[A-Za-z0-9._/{re.escape(SAFE)}-]*")


def spelled(name: str) -> str:
    """The path of the stream with a name. A name is not encoded, and `/` is all that divides it."""
    return quote(name, safe=f"/{SAFE}")


def fits(pattern: str, path: str) -> bool:
    """Whether a path matches. Most patterns need no expression, which takes long to compile: there
    may be one for each user."""
    head, star, rest = pattern.partition("*")
    if rest not in ("", "*"):
        return compiled(pattern).fullmatch(path) is not None
    begin = _spelled(head)
    if not star:
        return path == begin
    return path.startswith(begin) and (rest == "*" or "/" not in path[len(begin) :])


class Patterns(NamedTuple):
    each: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Patterns:
        """Patterns with commas or white space between them; a comma in a path is `%2C`."""
        return cls(tuple(filter(None, _BETWEEN.split(text))))

    def matches(self, path: str) -> bool:
        return any(fits(pattern, path) for pattern in self.each)

    def covers(self, prefix: str) -> bool:
        """Whether one of them matches every path that begins with the prefix."""
        return any(pattern.endswith("**") and fits(pattern, prefix) for pattern in self.each)


EVERYTHING: Final = Patterns(("**",))
NOTHING: Final = Patterns(())


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """An expression that a path matches from end to end.

    A search that has found the text after a star does not look for it further on (`(?>`): another
    place could not match where this one does not. So no pattern takes more than quadratic time,
    and one that an issuer of tokens builds from a user's name cannot keep the server busy."""
    *before, last = _chunks(pattern)
    runs = map(_run, before)
    parts = [f"(?>.*?{run})" if place else run for place, run in enumerate(runs)]
    parts += [".*" if before else "", _run(last[:-1]), "[^/]*" if last[1:] else "", last[-1]]
    return re.compile("".join(parts), re.DOTALL)


def _chunks(pattern: str) -> list[list[str]]:
    """What is between two stars together; each a list of what is between single ones."""
    first, *rest = _STARS.split(pattern)
    chunks = [[_literal(first)]]
    for stars, text in zip(rest[::2], rest[1::2], strict=True):
        if len(stars) > 1:
            chunks.append([])
        chunks[-1].append(_literal(text))
    return chunks


def _run(texts: list[str]) -> str:
    return "".join(f"(?>[^/]*?{text})" if place else text for place, text in enumerate(texts))


def _literal(text: str) -> str:
    return re.escape(_spelled(text))


def _spelled(text: str) -> str:
    """As paths are spelled, whether it was encoded or not."""
    if _PLAIN.fullmatch(text):
        return text
    segments = text.encode(errors="surrogateescape").split(b"/")
    return "/".join(quote(unquote_to_bytes(each), safe=SAFE) for each in segments)
