"""Retention: for how long streams keep their data, and how much of it.

The setting has rules, `logs/*=7d,1GB; audit/**=forever; **=90d`, of which the first whose pattern
matches a path decides. What is older than a rule's age is let go, and so is what lies further back
than its size: of both limits the one that is reached first. Where no rule matches, all stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tailrace.errors import BadSetting
from tailrace.log.path_patterns import compiled
from tailrace.log.state import Config, State

AGES: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
SIZES: Final = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}

_LIMIT: Final = re.compile(r"([1-9][0-9]{0,14})([A-Za-z]+)")


class Keep(NamedTuple):
    """What a rule keeps; None: it has no such limit."""

    age: int | None
    """Milliseconds."""
    size: int | None
    """Bytes."""


class Rule(NamedTuple):
    pattern: re.Pattern[str]
    keep: Keep | None
    """None: all of it, forever."""


class Piece(NamedTuple):
    """Slots that are let go together: those of a segment, or a single one."""

    stop: int
    """The slot after the last."""
    at: int
    """When the last was written, in milliseconds."""
    size: int
    """The size of the stream after it."""


class Retention(NamedTuple):
    rules: Sequence[Rule]

    @classmethod
    def parse(cls, text: str) -> Retention:
        return cls([_rule(each.strip()) for each in text.split(";") if each.strip()])

    def keep(self, path: str) -> Keep | None:
        """What the stream at a path keeps; None: all of it, forever."""
        for rule in self.rules:
            if rule.pattern.fullmatch(path):
                return rule.keep
        return None


def lets_go(keep: Keep, state: State, piece: Piece, now: int, grace: int = 0) -> bool:
    """Whether a rule lets go of the first slots of a stream; none is younger than `grace` seconds.

    The last entry stays, whatever the rule says: it is the stream's state."""
    if piece.stop >= state.slot or now < piece.at + grace * 1000:
        return False
    old = keep.age is not None and now >= piece.at + keep.age
    return old or (keep.size is not None and state.size - piece.size >= keep.size)


def first_kept(keep: Keep, state: State, first: int, pieces: Iterable[Piece], now: int) -> int:
    """The first slot that stays, of a chain that begins at `first` with these pieces in order."""
    for piece in pieces:
        if not lets_go(keep, state, piece, now):
            break
        first = piece.stop
    return first


def earliest(config: Config, first: int) -> int:
    """The first slot of a stream that can be read, if its own chain begins at `first` by now.

    A fork that has lost slots of its own has lost what is before them, too: no reader is to find
    a hole."""
    return first if first > config.base[0] else config.earliest


def _rule(text: str) -> Rule:
    pattern, equals, limits = (part.strip() for part in text.rpartition("="))
    if not (pattern and equals):
        raise _bad(text)
    matches = compiled(pattern)
    if limits == "forever":
        return Rule(matches, None)
    found: dict[bool, int] = {}
    for limit in limits.split(","):
        match = _LIMIT.fullmatch(limit.strip())
        unit = match[2] if match else ""
        is_age = unit in AGES
        if match is None or is_age in found or not (is_age or unit in SIZES):
            raise _bad(text)
        found[is_age] = int(match[1]) * (AGES if is_age else SIZES)[unit]
    return Rule(matches, Keep(found.get(True), found.get(False)))


def _bad(rule: str) -> BadSetting:
    return BadSetting(
        f"TAILRACE_RETENTION has the rule '{rule}', but a rule is PATTERN=LIMITS: an age with"
        f" {', '.join(AGES)}, a size with {', '.join(SIZES)}, both with a comma between them, or"
        " forever; such as logs/*=7d,1GB"
    )
