"""Signed stream names: a name that an application has put its secret under, as Rails does it.

    base64 of the JSON string, "--", HMAC-SHA256 of that base64 in hexadecimal digits

JSON has several spellings for one name, and every language has its own favourite. So a signed name
is checked as it came, and never made anew to compare.
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
    """The signed form of a stream's name, such as `chat/room-1`."""
    if not name:
        raise CannotSign("a stream's name must not be empty")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise CannotSign("a stream's name must be text that UTF-8 can encode") from None
    if not secret:
        raise CannotSign("the secret is empty: what it signs would be refused")
    encoded = b64encode(json.dumps(name).encode())
    return f"{encoded.decode()}--{_mac(encoded, _bytes(secret))}"


def verified(token: str, secrets: Sequence[str | bytes]) -> str | None:
    """The name that was signed with one of the secrets; None: with none of them."""
    if len(token) > TOKEN_BYTES:
        return None
    shape = _SIGNED.fullmatch(token)
    if shape is None:
        return None
    encoded, shown = shape[1].encode(), shape[2]
    # Every secret is tried: how long that takes tells nothing about any of them.
    matches = [hmac.compare_digest(_mac(encoded, _bytes(each)), shown) for each in secrets if each]
    return _name(encoded) if any(matches) else None


def _name(encoded: bytes) -> str | None:
    try:
        # Unlike `json.loads`, it takes no lone surrogate, which no path could hold.
        name = orjson.loads(b64decode(encoded))
    except ValueError:
        return None
    return name if isinstance(name, str) and name else None


def _mac(encoded: bytes, secret: bytes) -> str:
    return hmac.digest(secret, encoded, "sha256").hex()


def _bytes(secret: str | bytes) -> bytes:
    return secret if isinstance(secret, bytes) else secret.encode(errors="surrogateescape")
