"""Which secrets apply to what.

| for | the first of these settings that is given |
|---|---|
| signed stream names | `streams_secret`, `secret` |
| those of Turbo | `turbo_streams_secret`, `streams_secret`, `secret` |
| those of CableReady | `cable_ready_secret`, `streams_secret`, `secret` |
| tokens, HS256 to HS512 | `jwt_secret`, `secret` |
| broadcasts | `broadcast_key`, or a key derived from `secret` |

A setting may hold several with white space between them: all of them verify, and the first one
signs. The value `none` stands for no secret at all, so that nothing verifies.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

from tailrace.errors import BadSetting
from tailrace.settings import Settings

CLEARED: Final = "none"
BROADCAST: Final = b"broadcast-cable"
_PUBLIC: Final = (b"-----BEGIN", b"ssh-", b"ecdsa-")


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    streams: tuple[bytes, ...]
    turbo: tuple[bytes, ...]
    cable_ready: tuple[bytes, ...]
    jwt: tuple[bytes, ...]
    broadcast: tuple[bytes, ...]

    @classmethod
    def of(cls, settings: Settings) -> Keys:
        secret, streams = settings.secret, settings.streams_secret
        jwt = _chosen(settings.jwt_secret, secret)
        if any(key.startswith(_PUBLIC) for key in jwt):
            raise BadSetting(
                "TAILRACE_JWT_SECRET is a public key, which everybody may know: give TAILRACE_JWKS"
                " and TAILRACE_JWT_ALGORITHM instead"
            )
        derived = tuple(hmac.digest(key, BROADCAST, "sha256").hex() for key in _chosen(secret))
        return cls(
            streams=_chosen(streams, secret),
            turbo=_chosen(settings.turbo_streams_secret, streams, secret),
            cable_ready=_chosen(settings.cable_ready_secret, streams, secret),
            jwt=jwt,
            broadcast=_chosen(settings.broadcast_key, " ".join(derived)),
        )

    def broadcasts(self, shown: str) -> bool:
        # Every key is compared: how long that takes tells nothing about any of them.
        return sum(hmac.compare_digest(shown.encode(), key) for key in self.broadcast) > 0


def _chosen(*settings: str) -> tuple[bytes, ...]:
    given = next((value.strip() for value in settings if value.strip()), CLEARED)
    if given == CLEARED:
        return ()
    # As the environment had them, UTF-8 or not.
    return tuple(key.encode(errors="surrogateescape") for key in given.split())
