"""Signed stream names: a name with an HMAC under the application's secret, as in Rails.

    base64 of the JSON string, "--", HMAC-SHA256 of that base64 in hexadecimal digits

JSON can write one name in several ways, and languages differ in which they use. So a signed name is
verified as received, and never signed again to compare.
"""

from __future__ import annotations

import hmac
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final

import orjson

from tailrace.errors import CannotSign
from tailrace.limits import TOKEN_BYTES

_SIGNED: Final = re.compile(
    r"((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)--([0-9a-f]{64})"
)


def sign(name: str, secret: str | bytes) -> str:
    """Sign the name of a stream, such as `chat/room-1`."""
    if not name:
        raise CannotSign("the name of a stream must not be empty")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise CannotSign("the name of a stream must be text that can be encoded as UTF-8") from None
    if not secret:
        raise CannotSign("the secret is empty, so the signed name would be refused")
    encoded = b64encode(json.dumps(name).encode())
    return f"{encoded.decode()}--{_mac(encoded, _to_bytes(secret))}"


def is_signed(name: str) -> bool:
    """Whether a text has the form of a signed name."""
    return _SIGNED.fullmatch(name) is not None


def verify_name(token: str, secrets: Sequence[str | bytes]) -> str | None:
    """The name if it was signed with one of the secrets, or None."""
    if len(token) > TOKEN_BYTES:
        return None
    match = _SIGNED.fullmatch(token)
    if match is None:
        return None
    encoded, signature = match[1].encode(), match[2]
    # Try every secret, so that the time taken reveals nothing about any of them.
    matches = [
        hmac.compare_digest(_mac(encoded, _to_bytes(each)), signature) for each in secrets if each
    ]
    return _decode(encoded) if any(matches) else None


def _decode(encoded: bytes) -> str | None:
    try:
        # Unlike `json.loads`, orjson refuses a lone surrogate, which no path can hold.
        name = orjson.loads(b64decode(encoded))
    except ValueError:
        return None
    return name if isinstance(name, str) and name else None


def _mac(encoded: bytes, secret: bytes) -> str:
    return hmac.digest(secret, encoded, "sha256").hex()


def _to_bytes(secret: str | bytes) -> bytes:
    return secret if isinstance(secret, bytes) else secret.encode(errors="surrogateescape")
