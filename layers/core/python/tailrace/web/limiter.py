"""How much one client may do: appends a second, live reads at once, long-polls that cannot wait.

Everything is in the memory of one process, and of clients that have gone nothing is kept. A server
limits all of its clients so; functions, of which there are many, only tell spinning clients to wait
and leave the rest to the firewall.
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
    KNOWN_CLIENTS,
    LIVE_RETRY_SECONDS,
    SPIN_REQUESTS,
    SPIN_SECONDS,
)

_IPV6_NETWORK: Final = 64
"""Whoever has one address of IPv6 has all of such a network."""

K = TypeVar("K")
V = TypeVar("V")


def client_key(subject: str | None, peer: str) -> str:
    """Who counts as one client: whom the token names, or else whoever is at an address."""
    return f"sub {subject}" if subject else _network(peer)


@lru_cache(maxsize=KNOWN_CLIENTS)
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
    """A map that remembers for `seconds` what was put or asked for, and then may forget it.

    There are two generations. When the younger is old enough, or full, it becomes the older, and
    the older one is dropped as a whole: nobody has to look for what has to go."""

    def __init__(self, seconds: float, most: int = KNOWN_CLIENTS) -> None:
        self._seconds = seconds
        self._most = most
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._turns_at = 0.0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: K, now: float) -> V | None:
        if now >= self._turns_at:
            self._turn(now)
        found = self._young.get(key)
        if found is None and (found := self._old.get(key)) is not None:
            # Who is asked for stays, or a crowd of others would wash it away.
            self.put(key, found, now)
        return found

    def put(self, key: K, value: V, now: float) -> None:
        if now >= self._turns_at or len(self._young) >= self._most:
            self._turn(now)
        self._young[key] = value

    def _turn(self, now: float) -> None:
        # After a pause of both their times the younger one is out of date as well.
        stale = now >= self._turns_at + self._seconds
        self._old = {} if stale else self._young
        self._young = {}
        self._turns_at = now + self._seconds


class _Spin(NamedTuple):
    asked: int
    until: float


class Limiter:
    """What the stream routes ask before they do something for a client.

    A client is what `client_key` makes of it. Each of `append`, `admit` and `ended` raises
    `TooManyRequests` when it is too much, and nothing must have been done by then. `clock` counts
    seconds."""

    def __init__(
        self,
        append_rate: float = 0,
        live_connections: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The settings of these names; 0: no limit."""
        self._clock = clock
        self._append_rate = append_rate
        self._cost = 1 / append_rate if append_rate else 0.0
        # Who may append less than once in the time of a burst may do it once, then.
        self._burst = max(float(BURST_SECONDS), self._cost)
        self._used_until: Recent[str, float] = Recent(self._burst)
        """When the bucket of a client is full again. Who is not in here has a full one."""
        self._most_live = live_connections
        self._live: dict[str, int] = {}
        self._spins: Recent[tuple[str, str], _Spin] = Recent(SPIN_SECONDS)

    def append(self, client: str) -> None:
        """One append, or creation, is about to be done for a client."""
        cost = self._cost
        if not cost:
            return
        now = self._clock()
        used_until = self._used_until.get(client, now)
        full = now + cost if used_until is None or used_until < now else used_until + cost
        over = full - now - self._burst
        # Sums of fractions are not exact: without the margin the last of a burst might be refused.
        if over > 1e-6:
            raise TooManyRequests(
                f"a client may append {self._append_rate:g} times a second; put more into one"
                " append, or wait",
                math.ceil(over),
            )
        self._used_until.put(client, full, now)

    def admit(self, client: str) -> None:
        """A client asks for a live read. Nothing is counted yet: that is done by `live`."""
        if self._most_live and self._live.get(client, 0) >= self._most_live:
            raise TooManyRequests(
                f"a client may have {self._most_live} live reads at once; end one of them first",
                LIVE_RETRY_SECONDS,
            )

    @contextmanager
    def live(self, client: str) -> Iterator[None]:
        """One live read lasts as long as this does, however it ends.

        It never raises by itself, since an SSE answer runs only after its head was sent: `admit`
        has to be asked before that. Where nothing is awaited between the two they are exact."""
        if not self._most_live:
            yield
            return
        self._live[client] = self._live.get(client, 0) + 1
        try:
            yield
        finally:
            left = self._live[client] - 1
            if left:
                self._live[client] = left
            else:
                del self._live[client]

    def ended(self, client: str, path: str) -> None:
        """A long-poll begins at the end of a stream that is closed already.

        It cannot wait and is answered at once, so a client that does not understand the answer asks
        a thousand times a second. A long-poll that has waited and then saw the stream being closed
        must not be counted: many clients behind one address may see that together."""
        now = self._clock()
        spin = self._spins.get((client, path), now)
        if spin is None or spin.until <= now:
            spin = _Spin(0, now + SPIN_SECONDS)
        if spin.asked >= SPIN_REQUESTS:
            raise TooManyRequests(
                f"the stream at '{path}' is closed and will not grow: Stream-Closed said so"
                f" {SPIN_REQUESTS} times; stop asking",
                math.ceil(spin.until - now),
            )
        self._spins.put((client, path), _Spin(spin.asked + 1, spin.until), now)
