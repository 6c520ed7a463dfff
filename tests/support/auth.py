"""A fixed time, and tokens created by hand or by PyJWT."""

from __future__ import annotations

from typing import Any

import jwt

from devtools.tokens import NOW, SECONDS, SECRET, by_hand, hex_mac, part

__all__ = ["CLAIMS", "HOUR", "NOW", "SECONDS", "SECRET", "bearer", "by_hand", "hex_mac", "part"]

HOUR = 3600

CLAIMS: dict[str, Any] = {
    "sub": "ada",
    "scope": "read",
    "streams": "chat/*",
    "exp": SECONDS + HOUR,
}


def bearer(
    claims: dict[str, Any] | None = None, *, secret: str = SECRET, without: str = "", **more: Any
) -> str:
    """A token by PyJWT with the usual claims, more of them, or without one."""
    all_claims = CLAIMS | (claims or {}) | more
    all_claims.pop(without, None)
    return jwt.encode(all_claims, secret, "HS256")
