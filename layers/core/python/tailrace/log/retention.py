"""Retention: for how long streams keep their data, and how much of it.

The setting has rules, `logs/*=7d,1GB; audit/**=forever; **=90d`; the first whose pattern matches a
path decides. Entries older than the rule's age are removed, and so are those further back than its
size, whichever limit is reached first. A stream that no rule matches keeps everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tailrace.errors import BadSetting
from tailrace.log.paths import Rule, compile_pattern, parse_rules
from tailrace.log.state import Config, State

AGES: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
SIZES: Final = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}

_LIMIT: Final = re.compile(r"([1-9][0-9]{0,14})([A-Za-z]+)")


class Keep(NamedTuple):
    """The limits of a rule; None: it has no such limit."""

    age: int | None
    """Milliseconds."""
    size: int | None
    """Bytes."""


class Policy(NamedTuple):
    pattern: re.Pattern[str]
    keep: Keep | None
    """None: all of it, forever."""


class Piece(NamedTuple):
    """Slots that are removed together: those of a segment, or a single one."""

    stop: int
    """The slot after the last."""
    written_at: int
    """When the last was written, in milliseconds."""
    size: int
    """The size of the stream after it."""


class Retention(NamedTuple):
    policies: Sequence[Policy]

    @classmethod
    def parse(cls, text: str) -> Retention:
        return cls([_policy(rule) for rule in parse_rules(text)])

    def keep(self, path: str) -> Keep | None:
        """Return what the stream at a path keeps; None: all of it, forever."""
        for policy in self.policies:
            if policy.pattern.fullmatch(path):
                return policy.keep
        return None


def may_remove(keep: Keep, state: State, piece: Piece, now: int, grace: int = 0) -> bool:
    """Whether retention removes the first slots of a stream; none is younger than `grace` seconds.

    The last entry always stays: it is the stream's state."""
    if piece.stop >= state.slot or now < piece.written_at + grace * 1000:
        return False
    old = keep.age is not None and now >= piece.written_at + keep.age
    return old or (keep.size is not None and state.size - piece.size >= keep.size)


def first_kept(keep: Keep, state: State, first: int, pieces: Iterable[Piece], now: int) -> int:
    """Return the first slot that stays, of a chain that begins at `first` with these pieces."""
    for piece in pieces:
        if not may_remove(keep, state, piece, now):
            break
        first = piece.stop
    return first


def earliest(config: Config, first: int) -> int:
    """Return the first readable slot of a stream whose own chain begins at `first` by now.

    A fork that has lost slots of its own has lost all before them, too: readers must not find a
    hole."""
    return first if first > config.base[0] else config.earliest


def _policy(rule: Rule) -> Policy:
    if not (rule.pattern and rule.value):
        raise _bad(rule)
    pattern = compile_pattern(rule.pattern)
    if rule.value == "forever":
        return Policy(pattern, None)
    age = size = None
    for text in rule.value.split(","):
        match = _LIMIT.fullmatch(text.strip())
        if match and match[2] in AGES and age is None:
            age = int(match[1]) * AGES[match[2]]
        elif match and match[2] in SIZES and size is None:
            size = int(match[1]) * SIZES[match[2]]
        else:
            raise _bad(rule)
    return Policy(pattern, Keep(age, size))


def _bad(rule: Rule) -> BadSetting:
    return BadSetting(
        f"TAILRACE_RETENTION has the rule '{rule.text}', but a rule is PATTERN=LIMITS: an age with"
        f" {', '.join(AGES)}, a size with {', '.join(SIZES)}, both with a comma between them, or"
        " forever; such as logs/*=7d,1GB"
    )
