"""Tokens signed by hand, right or wrong in any way, at a fixed time."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode

SECRET = "a secret of more than 32 bytes, as it should be".replace(" ", "-")
NOW = 1_800_000_000_000
SECONDS = NOW // 1000


def part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def by_hand(header: object, claims: object, secret: str = SECRET, kind: str = "sha256") -> str:
    """A correctly signed token with any header and claims."""
    signed = f"{part(header)}.{part(claims)}"
    return f"{signed}.{part(hmac.digest(secret.encode(), signed.encode(), kind))}"


def hex_mac(secret: str, message: str) -> str:
    return hmac.new(secret.encode(), message.encode(), hashlib.sha256).hexdigest()
