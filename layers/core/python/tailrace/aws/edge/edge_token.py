"""Edge tokens: proof that the edge function has already authorized a read.

A token is an HMAC of the path with a key derived from the origin secret, which CloudFront and the
functions share anyway. Rotation leaves no gap: the functions accept the previous and the pending
value of the secret as well as the current one, so the edge may lag behind.
"""

from __future__ import annotations

import hmac
from typing import Final

HEADER: Final = b"x-tailrace-edge-token"
_PURPOSE: Final = b"tailrace-edge-token"


def derive_key(origin_secret: bytes) -> str:
    """Derive the key as text, since CloudFront's key-value store only holds text."""
    return hmac.digest(origin_secret, _PURPOSE, "sha256").hex()


def sign(key: str, raw_path: bytes) -> bytes:
    return hmac.digest(key.encode(), b"edge-token\n" + raw_path, "sha256").hex().encode()
