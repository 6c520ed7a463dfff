"""A fixed time, and tokens created by hand or by PyJWT."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from typing import Any

import jwt

SECRET = "a secret of more than 32 bytes, as it should be".replace(" ", "-")
NOW = 1_800_000_000_000
SECONDS = NOW // 1000
HOUR = 3600

CLAIMS: dict[str, Any] = {
    "sub": "ada",
    "scope": "read",
    "streams": "chat/*",
    "exp": SECONDS + HOUR,
}


def part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def by_hand(header: object, claims: object, secret: str = SECRET, kind: str = "sha256") -> str:
    """A correctly signed token with any header and claims."""
    signed = f"{part(header)}.{part(claims)}"
    return f"{signed}.{part(hmac.digest(secret.encode(), signed.encode(), kind))}"


def bearer(
    claims: dict[str, Any] | None = None, *, secret: str = SECRET, without: str = "", **more: Any
) -> str:
    """A token by PyJWT with the usual claims, more of them, or without one."""
    all_claims = CLAIMS | (claims or {}) | more
    all_claims.pop(without, None)
    return jwt.encode(all_claims, secret, "HS256")


def hex_mac(secret: str, message: str) -> str:
    return hmac.new(secret.encode(), message.encode(), hashlib.sha256).hexdigest()
