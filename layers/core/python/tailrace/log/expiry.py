"""When a stream expires: a sliding idle window in seconds, or a fixed instant."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from tailrace.errors import BadHeader
from tailrace.limits import MAX_INTEGER
from tailrace.log.state import Config

_DECIMAL = re.compile(r"0|[1-9][0-9]*")
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

RENEWAL_SHARE: Final = 0.1
RENEWAL_MOST_MS: Final = 60_000


def parse_decimal(name: str, text: str) -> int:
    """A non-negative integer without sign, leading zeros or anything else around it."""
    if not _DECIMAL.fullmatch(text) or len(text) > 16 or int(text) > MAX_INTEGER:
        raise BadHeader(f"{name} must be a decimal integer from 0 to {MAX_INTEGER}")
    return int(text)


def parse_instant(text: str) -> int:
    """An RFC 3339 timestamp as milliseconds since 1970."""
    if not _RFC3339.fullmatch(text):
        raise BadHeader("Stream-Expires-At must be an RFC 3339 time such as 2030-01-31T12:00:00Z")
    whole, point, rest = text.upper().partition(".")
    if point:
        # Python reads at most microseconds.
        digits = re.match(r"[0-9]+", rest)[0]  # type: ignore[index]
        whole += f".{digits[:6].ljust(6, '0')}{rest[len(digits) :]}"
    try:
        return (datetime.fromisoformat(whole).astimezone(UTC) - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):
        raise BadHeader(f"Stream-Expires-At '{text}' is not a time that exists") from None


def format_instant(instant: int) -> str:
    moment = _EPOCH + instant * _MILLISECOND
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def deadline(config: Config, accessed: int) -> int | None:
    """The instant at which a stream last accessed then expires, if it ever does."""
    if config.ttl is not None:
        return accessed + config.ttl * 1000
    return config.expires_at


def expired(config: Config, accessed: int, now: int) -> bool:
    instant = deadline(config, accessed)
    return instant is not None and now >= instant


def is_purged(config: Config, *, complete: bool, cold: bool) -> bool:
    """Return whether deleting a stream purges it from shared caches.

    `complete`: it had chunks that cannot grow, `cold`: chunks that came from segments. Caches serve
    both for longer than a minute, but the former not if the stream expires. A purge has its price,
    and what is served for a minute at most is gone before long.
    """
    expires = config.ttl is not None or config.expires_at is not None
    return cold or (complete and not expires)


def renewal_slack(ttl: int) -> int:
    """How far, in milliseconds, the stored access time may lag behind the true one.

    Reads renew the window but are not worth a write each: the clock is stored again only when it
    lags by this much, and a store that knows only the stored time adds it, so that a stream may
    live on that much longer, but never expires early.
    """
    return min(int(ttl * 1000 * RENEWAL_SHARE), RENEWAL_MOST_MS)


def stored_deadline(config: Config, stored: int) -> int | None:
    """Return when a stream expires, judged by the stored time of access alone."""
    instant = deadline(config, stored)
    if instant is not None and config.ttl is not None:
        instant += renewal_slack(config.ttl)
    return instant
