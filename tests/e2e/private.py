"""Credentials for the path with a closed door."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from tailrace.auth.jws import made

OLD: Final = "the-old-secret-of-this-machine-and-no-other"
NEW: Final = "the-new-secret-of-this-machine-and-no-other"

ACCESS: Final = {"secret": f"{OLD} {NEW}", "public_streams": "public/**"}
"""What the access secret says at first."""


def bearer(scope: str, streams: str = "**", *, secret: str = OLD, **claims: Any) -> dict[str, str]:
    """A header; one that nobody else shows, if a claim says who it is."""
    all_claims = {"scope": scope, "streams": streams, "exp": int(time.time()) + 3600, **claims}
    return {"Authorization": f"Bearer {made(all_claims, secret.encode(), 'HS256')}"}


def each_its_own(scope: str, number: int) -> Mapping[str, str]:
    return bearer(scope, "**", sub=f"client-{number}")
