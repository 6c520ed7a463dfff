"""Keys: which secret is used for which purpose.

| for | the first of these settings that is set |
|---|---|
| signed stream names | `streams_secret`, `secret` |
| signed names of Turbo | `turbo_streams_secret`, `streams_secret`, `secret` |
| signed names of CableReady | `cable_ready_secret`, `streams_secret`, `secret` |
| tokens signed with HS256 to HS512 | `jwt_secret`, `secret` |
| broadcasts | `broadcast_key`, or a key derived from `secret` |
| the REST API of AnyCable | `api_secret`, or a key derived from `secret` |
| calls of an application | `http_rpc_secret`, or a key derived from `secret` |
| metrics | `metrics_key` |

A setting may hold several secrets separated by white space: all of them verify, and the first one
signs. The value `none` disables the purpose: nothing verifies.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

from tailrace.errors import BadSetting
from tailrace.limits import SECRET_BYTES
from tailrace.settings import Settings

DISABLED: Final = "none"
BROADCAST: Final = b"broadcast-cable"
API: Final = b"api-cable"
RPC: Final = b"rpc-cable"
_PUBLIC_KEY_PREFIXES: Final = (b"-----BEGIN", b"ssh-", b"ecdsa-")


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """The secrets for every purpose; the first of each signs."""

    streams: tuple[bytes, ...]
    turbo: tuple[bytes, ...]
    cable_ready: tuple[bytes, ...]
    jwt: tuple[bytes, ...]
    broadcast: tuple[bytes, ...]
    api: tuple[bytes, ...]
    rpc: tuple[bytes, ...]
    metrics: tuple[bytes, ...]

    @classmethod
    def from_settings(cls, settings: Settings) -> Keys:
        secret, streams = settings.secret, settings.streams_secret
        jwt = _select_keys(settings.jwt_secret, secret)
        if any(key.startswith(_PUBLIC_KEY_PREFIXES) for key in jwt):
            raise BadSetting(
                "TAILRACE_JWT_SECRET is a public key, which is not secret: set TAILRACE_JWKS and"
                " TAILRACE_JWT_ALGORITHM instead"
            )
        return cls(
            streams=_select_keys(streams, secret),
            turbo=_select_keys(settings.turbo_streams_secret, streams, secret),
            cable_ready=_select_keys(settings.cable_ready_secret, streams, secret),
            jwt=jwt,
            broadcast=_select_keys(settings.broadcast_key, _derive_keys(secret, BROADCAST)),
            api=_select_keys(settings.api_secret, _derive_keys(secret, API)),
            rpc=_select_keys(settings.http_rpc_secret, _derive_keys(secret, RPC)),
            metrics=_select_keys(settings.metrics_key),
        )


KEYS: Final = (
    "secret",
    "streams_secret",
    "turbo_streams_secret",
    "cable_ready_secret",
    "jwt_secret",
    "broadcast_key",
    "api_secret",
    "http_rpc_secret",
    "metrics_key",
)
"""The settings that hold secrets of operators."""


def find_guessable(settings: Settings) -> list[str]:
    """Return the settings with a secret that is so short that it can be guessed."""
    return [
        name
        for name in KEYS
        if any(len(key) < SECRET_BYTES for key in _select_keys(getattr(settings, name)))
    ]


def is_key(candidate: str, keys: tuple[bytes, ...]) -> bool:
    # Compare with every key, so that the time taken reveals nothing about any of them.
    return sum(hmac.compare_digest(candidate.encode(), key) for key in keys) > 0


def _derive_keys(secret: str, purpose: bytes) -> str:
    """The keys that applications derive from the secret, as AnyCable does."""
    return " ".join(hmac.digest(key, purpose, "sha256").hex() for key in _select_keys(secret))


def _select_keys(*settings: str) -> tuple[bytes, ...]:
    secrets = next((value.strip() for value in settings if value.strip()), DISABLED)
    if secrets == DISABLED:
        return ()
    # The same bytes as in the environment, which need not be UTF-8.
    return tuple(key.encode(errors="surrogateescape") for key in secrets.split())
