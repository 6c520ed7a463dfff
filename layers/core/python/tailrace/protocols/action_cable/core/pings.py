"""Pings: their interval and their content.

The query of the URL may set the interval, `pi` in seconds (0: no pings), and the unit of the time
in a ping, `ptp`: s, ms or ns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tailrace.protocols.action_cable.core import frames

FASTEST: Final = 0.1
SLOWEST: Final = 3600.0

_DIVISORS: Final = {"s": 1000, "ms": 1}


class Pings(NamedTuple):
    """The pings that a client gets."""

    interval: float
    """In seconds; 0: none."""
    unit: str
    """Of the time in a ping: s, ms or ns."""


def asked_for(query: Mapping[str, Sequence[str]], default: float) -> Pings:
    return Pings(interval(query, default), unit(query))


def interval(query: Mapping[str, Sequence[str]], default: float) -> float:
    """The interval in seconds; 0: no pings."""
    try:
        seconds = float(query.get("pi", ("",))[-1])
    except ValueError:
        return default
    if seconds == 0:
        return 0
    return min(max(seconds, FASTEST), SLOWEST) if seconds > 0 else default


def unit(query: Mapping[str, Sequence[str]]) -> str:
    value = query.get("ptp", ("s",))[-1]
    return value if value in ("ms", "ns") else "s"


def ping(now: int, unit: str) -> str:
    """`now` is in milliseconds."""
    return frames.ping(now * 1_000_000 if unit == "ns" else now // _DIVISORS[unit])
