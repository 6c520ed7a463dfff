"""The part of the access rules that the edge knows, as entries of CloudFront's key-value store.

| key | value |
|---|---|
| `access` | JSON: secrets of names and tokens, the key of edge tokens, how to verify tokens |
| `public` | patterns of public streams, with spaces between them |

The edge only has to know enough to let most readers share. What it cannot hold, or would read
differently, is left out: it then verifies less and asks the origin more, never the other way round.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from tailrace.auth.authorizer import public_streams
from tailrace.auth.keys import Keys
from tailrace.aws.edge.edge_token import derive_key
from tailrace.log.path_patterns import Patterns
from tailrace.settings import Settings

ACCESS: Final = "access"
PUBLIC: Final = "public"

VALUE_BYTES: Final = 1000
"""CloudFront's store takes values of 1 KB."""

MOST_SECRETS: Final = 2
"""Of each kind: the one in use, and the one that comes or goes."""

_PLAIN: Final = re.compile(r"[ -~]*")
_SIMPLE: Final = re.compile(r"[A-Za-z0-9._/!$&'()+,;=:@~-]*\*{0,2}")
"""A pattern that needs no decoding and has stars at its end only."""


def entries(settings: Settings, origin_secret: bytes) -> dict[str, str]:
    """Of a closed authorizer with these settings. Without an entry the edge verifies nothing."""
    public = _fitting(public_streams(settings))
    for most in range(MOST_SECRETS, 0, -1):
        authorizer = orjson.dumps(
            _authorizer(settings, most, bool(public), derive_key(origin_secret))
        ).decode()
        if len(authorizer) <= VALUE_BYTES:
            return {ACCESS: authorizer} | ({PUBLIC: public} if public else {})
    return {}


def _authorizer(settings: Settings, most: int, public: bool, proof: str) -> dict[str, Any]:
    keys, identify = Keys.of(settings), not settings.skip_auth
    audience, issuer = settings.jwt_audience, settings.jwt_issuer
    plain = bool(_PLAIN.fullmatch(audience) and _PLAIN.fullmatch(issuer))
    return {
        "signed": _texts(keys.streams, most),
        "tokens": _texts(keys.jwt, most),
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


def _texts(secrets: tuple[bytes, ...], most: int) -> list[str]:
    """Those that mean the same bytes as text at the edge."""
    return [secret.decode() for secret in secrets if secret.isascii()][:most]


def _fitting(patterns: Patterns) -> str:
    text = ""
    for pattern in filter(_SIMPLE.fullmatch, patterns.each):
        longer = f"{text} {pattern}".strip()
        if len(longer) <= VALUE_BYTES:
            text = longer
    return text
