"""Lists of path patterns: which streams a token is for, and which are public."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tailrace.log.patterns import fits

_BETWEEN: Final = re.compile(r"[,\s]+")


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
