"""Rate limits per client: appends per second, live reads at a time, and spinning long-polls.

All state is in the memory of one process, and inactive clients are forgotten. The local server
applies every limit; Lambda functions, which share no memory, only limit spinning clients and leave
the rest to the firewall.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final, Generic, NamedTuple, TypeVar

from tailrace.errors import TooManyRequests
from tailrace.limits import (
    BURST_SECONDS,
    CLOSED_POLL_REQUESTS,
    CLOSED_POLL_SECONDS,
    LIVE_RETRY_SECONDS,
    RATE_LIMITED_CLIENTS,
)

_IPV6_NETWORK: Final = 64
"""Bits of an IPv6 network: a client that has one of its addresses has all of them."""

K = TypeVar("K")
V = TypeVar("V")


def client_key(subject: str | None, peer: str) -> str:
    """The key of a client: the subject of its token, or else the network of its address."""
    return f"sub {subject}" if subject else _network(peer)


@lru_cache(maxsize=RATE_LIMITED_CLIENTS)
def _network(peer: str) -> str:
    try:
        address = ip_address(peer)
    except ValueError:
        return f"peer {peer}"
    if not isinstance(address, IPv6Address):
        return f"peer {address}"
    if address.ipv4_mapped:
        return f"peer {address.ipv4_mapped}"
    return f"peer {IPv6Network((address.packed, _IPV6_NETWORK), strict=False)}"


class Recent(Generic[K, V]):
    """A map that keeps entries for at least `seconds` after they were last written or read.

    There are two generations. When the younger is old enough, or full, it replaces the older one,
    which is dropped as a whole: no entry has to be found to expire it."""

    def __init__(self, seconds: float, limit: int = RATE_LIMITED_CLIENTS) -> None:
        self._seconds = seconds
        self._limit = limit
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._rotates_at = 0.0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: K, now: float) -> V | None:
        if now >= self._rotates_at:
            self._rotate(now)
        value = self._young.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            # Entries in use stay: many other clients must not make the map forget a limited one.
            self.put(key, value, now)
        return value

    def put(self, key: K, value: V, now: float) -> None:
        if now >= self._rotates_at or len(self._young) >= self._limit:
            self._rotate(now)
        self._young[key] = value

    def _rotate(self, now: float) -> None:
        # After a pause of two periods the younger generation has expired as well.
        stale = now >= self._rotates_at + self._seconds
        self._old = {} if stale else self._young
        self._young = {}
        self._rotates_at = now + self._seconds


class _Spin(NamedTuple):
    polls: int
    until: float


class Limiter:
    """Counts the requests of clients, named by their `client_key`.

    `append`, `admit` and `check_closed_poll` raise `TooManyRequests` over the limit; call them
    before the request has any effect."""

    def __init__(
        self,
        append_rate: float = 0,
        live_connections: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The settings of these names; 0: no limit. `clock`: counts seconds."""
        self._clock = clock
        self._append_rate = append_rate
        self._cost = 1 / append_rate if append_rate else 0.0
        # A limit below one append per burst still allows one.
        self._burst = max(float(BURST_SECONDS), self._cost)
        self._used_until: Recent[str, float] = Recent(self._burst)
        """When the token bucket of a client is full again; that of a missing client is full."""
        self._live_limit = live_connections
        self._live: dict[str, int] = {}
        self._spins: Recent[tuple[str, str], _Spin] = Recent(CLOSED_POLL_SECONDS)

    def append(self, client: str) -> None:
        """Count one append or creation of a client."""
        cost = self._cost
        if not cost:
            return
        now = self._clock()
        used_until = self._used_until.get(client, now)
        full = now + cost if used_until is None or used_until < now else used_until + cost
        over = full - now - self._burst
        # The margin allows for rounding errors, which might refuse the last append of a burst.
        if over > 1e-6:
            raise TooManyRequests(
                f"a client may append {self._append_rate:g} times a second; put more into one"
                " append, or wait",
                math.ceil(over),
            )
        self._used_until.put(client, full, now)

    def admit(self, client: str) -> None:
        """Check that a client may begin a live read, which `live` counts."""
        if self._live_limit and self._live.get(client, 0) >= self._live_limit:
            raise TooManyRequests(
                f"a client may have {self._live_limit} live reads at once; end one of them first",
                LIVE_RETRY_SECONDS,
            )

    @contextmanager
    def live(self, client: str) -> Iterator[None]:
        """Count one live read until the context ends, as `begin_live` and `end_live` do."""
        self.begin_live(client)
        try:
            yield
        finally:
            self.end_live(client)

    def begin_live(self, client: str) -> None:
        """Count one more live read.

        It never raises, since the head of an SSE answer is sent before it: call `admit` before. The
        limit is exact if nothing is awaited in between."""
        if self._live_limit:
            self._live[client] = self._live.get(client, 0) + 1

    def end_live(self, client: str) -> None:
        if not self._live_limit:
            return
        left = self._live[client] - 1
        if left:
            self._live[client] = left
        else:
            del self._live[client]

    def check_closed_poll(self, client: str, path: str) -> None:
        """Count a long-poll that begins at the end of a closed stream.

        It is answered at once, so a client that ignores Stream-Closed repeats it a thousand times a
        second. Do not count long-polls that were waiting when the stream was closed: many clients
        may share one address."""
        now = self._clock()
        spin = self._spins.get((client, path), now)
        if spin is None or spin.until <= now:
            spin = _Spin(0, now + CLOSED_POLL_SECONDS)
        if spin.polls >= CLOSED_POLL_REQUESTS:
            raise TooManyRequests(
                f"the stream at '{path}' is closed and will not grow: Stream-Closed said so"
                f" {CLOSED_POLL_REQUESTS} times; stop polling it",
                math.ceil(spin.until - now),
            )
        self._spins.put((client, path), _Spin(spin.polls + 1, spin.until), now)
