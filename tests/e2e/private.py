"""Credentials and event types of the local AWS where credentials count."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from tailrace.auth.jws import sign_token
from tests.support.cable import SECRET

OLD: Final = SECRET
NEW: Final = "the-new-secret-of-this-machine-and-no-other"

ACCESS: Final = {"secret": f"{OLD} {NEW}", "public_streams": "public/**, open/**"}
"""The access secret at first."""

GUARDED: Final = """
  guarded:
    identifier: {name: {type: StringHandler, required: false}}
    auth: {required: true, read_roles: {lab: ["*"]}, write_roles: {lab: [producer]}}
"""
"""An event type of Aviso for which roles count."""


def bearer(scope: str, streams: str = "**", *, secret: str = OLD, **claims: Any) -> dict[str, str]:
    """A header; one that nobody else shows, if a claim says who it is."""
    all_claims = {"scope": scope, "streams": streams, "exp": int(time.time()) + 3600, **claims}
    return {"Authorization": f"Bearer {sign_token(all_claims, secret.encode(), 'HS256')}"}


def each_its_own(scope: str, number: int) -> Mapping[str, str]:
    return bearer(scope, "**", sub=f"client-{number}")
