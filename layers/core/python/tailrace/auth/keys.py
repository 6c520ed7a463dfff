"""Keys: which secret is used for which purpose.

| for | the first of these settings that is set |
|---|---|
| signed stream names | `streams_secret`, `secret` |
| signed names of Turbo | `turbo_streams_secret`, `streams_secret`, `secret` |
| signed names of CableReady | `cable_ready_secret`, `streams_secret`, `secret` |
| tokens signed with HS256 to HS512 | `jwt_secret`, `secret` |
| broadcasts | `broadcast_key`, or a key derived from `secret` |

A setting may hold several secrets separated by white space: all of them verify, and the first one
signs. The value `none` disables the purpose: nothing verifies.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

from tailrace.errors import BadSetting
from tailrace.settings import Settings

DISABLED: Final = "none"
BROADCAST: Final = b"broadcast-cable"
_PUBLIC_KEY_PREFIXES: Final = (b"-----BEGIN", b"ssh-", b"ecdsa-")


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """The secrets for every purpose; the first of each signs."""

    streams: tuple[bytes, ...]
    turbo: tuple[bytes, ...]
    cable_ready: tuple[bytes, ...]
    jwt: tuple[bytes, ...]
    broadcast: tuple[bytes, ...]

    @classmethod
    def from_settings(cls, settings: Settings) -> Keys:
        secret, streams = settings.secret, settings.streams_secret
        jwt = _select_keys(settings.jwt_secret, secret)
        if any(key.startswith(_PUBLIC_KEY_PREFIXES) for key in jwt):
            raise BadSetting(
                "TAILRACE_JWT_SECRET is a public key, which is not secret: set TAILRACE_JWKS and"
                " TAILRACE_JWT_ALGORITHM instead"
            )
        derived = tuple(hmac.digest(key, BROADCAST, "sha256").hex() for key in _select_keys(secret))
        return cls(
            streams=_select_keys(streams, secret),
            turbo=_select_keys(settings.turbo_streams_secret, streams, secret),
            cable_ready=_select_keys(settings.cable_ready_secret, streams, secret),
            jwt=jwt,
            broadcast=_select_keys(settings.broadcast_key, " ".join(derived)),
        )

    def is_broadcast_key(self, candidate: str) -> bool:
        # Compare with every key, so that the time taken reveals nothing about any of them.
        return sum(hmac.compare_digest(candidate.encode(), key) for key in self.broadcast) > 0


def _select_keys(*settings: str) -> tuple[bytes, ...]:
    secrets = next((value.strip() for value in settings if value.strip()), DISABLED)
    if secrets == DISABLED:
        return ()
    # The same bytes as in the environment, which need not be UTF-8.
    return tuple(key.encode(errors="surrogateescape") for key in secrets.split())
