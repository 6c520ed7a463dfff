"""Passes: with one the edge says that it has checked who reads, and what they may.

A pass is an HMAC of the path, by a key that is derived from the origin secret. That is the one
that CloudFront and the functions share already, and its rotation has no gap: the functions take the
values of before and to come as well as the current one, so the edge may be a little behind.
"""

from __future__ import annotations

import hmac
from typing import Final

HEADER: Final = b"x-tailrace-edge-token"
_PURPOSE: Final = b"tailrace-edge-token"


def derive_key(origin_secret: bytes) -> str:
    """As text: CloudFront's key-value store holds nothing else."""
    return hmac.digest(origin_secret, _PURPOSE, "sha256").hex()


def sign(key: str, raw_path: bytes) -> bytes:
    return hmac.digest(key.encode(), b"edge-token\n" + raw_path, "sha256").hex().encode()
