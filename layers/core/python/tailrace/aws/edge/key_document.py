"""The entries of CloudFront's key-value store, with which the edge function verifies credentials.

| key | value |
|---|---|
| `access` | JSON: secrets of signed names and tokens, key of edge tokens, how to verify tokens |
| `public` | patterns of public streams, separated by spaces |

The edge only needs enough to let most readers share responses. Anything that does not fit, or that
the edge would interpret differently, is left out: the edge then authorizes fewer requests by itself
and forwards more to the origin, never the other way round.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from tailrace.auth.authorizer import parse_public_streams
from tailrace.auth.keys import Keys
from tailrace.aws.edge.origin_secret import derive_key
from tailrace.log.paths import Patterns
from tailrace.settings import Settings

ACCESS: Final = "access"
PUBLIC: Final = "public"

VALUE_BYTES: Final = 1000
"""The store's limit is 1 KB per value."""

MOST_SECRETS: Final = 2
"""Of each kind: the current one, and one that is being introduced or retired."""

_PLAIN: Final = re.compile(r"[ -~]*")
_SIMPLE: Final = re.compile(r"[A-Za-z0-9._/!$&'()+,;=:@~-]*\*{0,2}")
"""A pattern that needs no decoding and has stars only at its end."""


def build_entries(settings: Settings, origin_secret: bytes) -> dict[str, str]:
    """Build the entries for closed access; without any, the edge verifies nothing."""
    public = _join_fitting(parse_public_streams(settings))
    for most in range(MOST_SECRETS, 0, -1):
        access = orjson.dumps(
            _access_entry(settings, most, bool(public), derive_key(origin_secret))
        ).decode()
        if len(access) <= VALUE_BYTES:
            return {ACCESS: access} | ({PUBLIC: public} if public else {})
    return {}


def _access_entry(settings: Settings, most: int, public: bool, proof: str) -> dict[str, Any]:
    keys, identify = Keys.from_settings(settings), not settings.skip_auth
    audience, issuer = settings.jwt_audience, settings.jwt_issuer
    plain = bool(_PLAIN.fullmatch(audience) and _PLAIN.fullmatch(issuer))
    return {
        "signed": _ascii_secrets(keys.streams, most),
        "tokens": _ascii_secrets(keys.jwt, most),
        "bearer": settings.jwt_algorithm == "HS256" and plain,
        "audience": audience if plain else "",
        "issuer": issuer if plain else "",
        "age": settings.jwt_max_age,
        "param": settings.jwt_param,
        "identify": identify,
        "enforce": settings.enforce_jwt and identify,
        "public": public,
        "proof": proof,
    }


def _ascii_secrets(secrets: tuple[bytes, ...], most: int) -> list[str]:
    """Decode the ASCII secrets: the edge would read others as different bytes."""
    return [secret.decode() for secret in secrets if secret.isascii()][:most]


def _join_fitting(patterns: Patterns) -> str:
    """Join as many patterns as fit into one value."""
    text = ""
    for pattern in filter(_SIMPLE.fullmatch, patterns.each):
        longer = f"{text} {pattern}".strip()
        if len(longer) <= VALUE_BYTES:
            text = longer
    return text
