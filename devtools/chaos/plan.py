"""The plan of a campaign: the same rounds with the same faults for the same seed.

A round is complete in itself: it has fresh servers and data, so it can be repeated alone.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

ROUND_SECONDS: Final = 12.0
DAMAGES_PER_ROUND: Final = 6
HOUR: Final = 3600


class Kind(StrEnum):
    KILL = "kill"
    """kill -9, and a start on the same data."""
    PAUSE = "pause"
    """SIGSTOP, and SIGCONT a while later."""
    CLOCK = "clock"
    """The server's clock jumps, ahead or back."""
    DISK = "disk"
    """The disk is full for a while."""
    SLOW = "slow"
    """Clients that stop reading or sending in the middle."""
    FLOOD = "flood"
    """Clients without credentials that ask as fast as they can."""
    ENGINE = "engine"
    """DynamoDB and S3 lose, delay, repeat and refuse calls."""
    OUTAGE = "outage"
    """DynamoDB and S3 cannot be reached."""
    DAMAGE = "damage"
    """Files of a stopped server are changed or removed."""


class Place(StrEnum):
    EMBEDDED = "embedded"
    """One server with its own files."""
    SHARED = "shared"
    """Two servers on one DynamoDB table."""
    DAMAGED = "damaged"
    """One server after the other on copies of the same files, each with other damage."""


FAULTS: Final = {
    Place.EMBEDDED: (Kind.KILL, Kind.PAUSE, Kind.CLOCK, Kind.DISK, Kind.SLOW, Kind.FLOOD),
    Place.SHARED: (Kind.ENGINE, Kind.OUTAGE, Kind.KILL, Kind.PAUSE, Kind.SLOW, Kind.FLOOD),
    Place.DAMAGED: (Kind.DAMAGE,),
}
"""The faults of each place. Servers on one table need clocks that agree, as those of AWS do."""

SEQUENCE: Final = (Place.EMBEDDED, Place.SHARED, Place.EMBEDDED, Place.DAMAGED)
"""The places of the rounds, over and over, as far as they have one of the chosen faults."""


class Rule(NamedTuple):
    """How often a fault occurs in a round, for how many seconds, and with which amounts."""

    least: int
    most: int
    shortest: float = 0.0
    longest: float = 0.0
    amounts: tuple[int, ...] = (0,)


RULES: Final = {
    Kind.KILL: Rule(2, 4),
    Kind.PAUSE: Rule(1, 3, 0.2, 2.5),
    Kind.CLOCK: Rule(1, 3, amounts=(-24 * HOUR, -HOUR, -5, 5, HOUR, 24 * HOUR)),
    Kind.DISK: Rule(1, 1, 1.0, 3.0, amounts=(0, 1)),
    Kind.SLOW: Rule(1, 1, 4.0, 8.0, amounts=(20, 40, 80)),
    Kind.FLOOD: Rule(1, 1, 1.0, 2.0, amounts=(8, 16, 32)),
    Kind.ENGINE: Rule(1, 2, 2.0, 5.0),
    Kind.OUTAGE: Rule(1, 2, 0.3, 1.5),
}


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    at: float
    """Seconds after the round's load has begun."""
    seconds: float
    server: int
    amount: int
    """Clients of a flood or of slow ones; seconds of a clock's jump; 1 kills while the disk is
    full."""

    def __str__(self) -> str:
        return f"{self.kind} of server {self.server}, {self.seconds:.1f} s, amount {self.amount}"


HARM: Final = {
    "bodies": ("flip", "cut", "empty", "remove"),
    "segments": ("flip", "cut", "empty", "remove"),
    "tailrace.db": ("head", "cut", "empty", "remove"),
    "tailrace.db-wal": ("flip", "cut", "empty", "remove"),
    "tailrace.id": ("flip", "empty", "remove"),
}
"""The files to damage, and the ways. Pages of the database are cut off, but not changed: SQLite
has no checksums for them, so nothing could notice."""


@dataclass(frozen=True, slots=True)
class Damage:
    what: str
    how: str
    where: float
    """Which of the files, and which part of it, from 0 to 1."""

    def __str__(self) -> str:
        return f"{self.how} {self.what}"


@dataclass(frozen=True, slots=True)
class Round:
    seed: int
    number: int
    place: Place
    faults: tuple[Fault, ...] = ()
    damages: tuple[Damage, ...] = ()

    def chance(self, role: str) -> random.Random:
        """The source of chance of one part of the round's load."""
        return random.Random(f"{self.seed}/{self.number}/{role}")

    @property
    def lenient(self) -> bool:
        """Whether the store may be unavailable, so that servers may answer 503."""
        return any(f.kind in (Kind.DISK, Kind.ENGINE, Kind.OUTAGE) for f in self.faults)


def rounds(seed: int, kinds: Collection[Kind]) -> Iterator[Round]:
    """All rounds of a campaign, without end; a round depends on its number, not on those before."""
    places = [place for place in SEQUENCE if _chosen(place, kinds)]
    if not places:
        raise ValueError(f"no round has only these faults: {', '.join(sorted(kinds))}")
    for number, place in enumerate(itertools.cycle(places)):
        chance = random.Random(f"{seed}/{number}")
        if place is Place.DAMAGED:
            yield Round(seed, number, place, damages=_damages(chance))
        else:
            faults = [f for kind in _chosen(place, kinds) for f in _faults(kind, place, chance)]
            faults.sort(key=lambda fault: fault.at)
            yield Round(seed, number, place, faults=tuple(faults))


def _chosen(place: Place, kinds: Collection[Kind]) -> list[Kind]:
    chosen = [kind for kind in FAULTS[place] if kind in kinds]
    if place is Place.SHARED and not {Kind.ENGINE, Kind.OUTAGE} & set(chosen):
        return []
    return chosen


def _faults(kind: Kind, place: Place, chance: random.Random) -> Iterator[Fault]:
    rule = RULES[kind]
    for _ in range(chance.randint(rule.least, rule.most)):
        seconds = chance.uniform(rule.shortest, rule.longest)
        at = chance.uniform(0, ROUND_SECONDS - seconds)
        server = chance.randrange(2) if place is Place.SHARED else 0
        yield Fault(kind, at, seconds, server, chance.choice(rule.amounts))


def _damages(chance: random.Random) -> tuple[Damage, ...]:
    every = [(what, how) for what, ways in HARM.items() for how in ways]
    chosen = chance.sample(every, DAMAGES_PER_ROUND)
    return tuple(Damage(what, how, chance.random()) for what, how in chosen)
