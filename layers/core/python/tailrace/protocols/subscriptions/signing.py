"""Keys of subscriptions: signatures of webhooks, and tokens of wakes.

Both keys are derived from one random secret, so that a rotation replaces one value. Older secrets
still verify, and newer ones do before they are used: their public keys are published so long that
every receiver knows them.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson

from tailrace.errors import TokenExpired
from tailrace.limits import TOKEN_BYTES, WAKE_TOKEN_SECONDS

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_SIGNING: Final = b"tailrace-webhook-signature"
_TOKENS: Final = b"tailrace-subscription-token"


class SigningKey:
    def __init__(self, secret: bytes) -> None:
        self.token_key = hmac.digest(secret, _TOKENS, "sha256")
        self._seed = hmac.digest(secret, _SIGNING, "sha256")

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data)

    @cached_property
    def kid(self) -> str:
        """Derived from the thumbprint of the public key, as in RFC 7638."""
        required = {name: self.jwk_members[name] for name in ("crv", "kty", "x")}
        thumbprint = hashlib.sha256(orjson.dumps(required)).digest()
        return f"ds_{_encode_base64(thumbprint)}"

    @cached_property
    def jwk_members(self) -> Mapping[str, str]:
        public = self._private.public_key().public_bytes_raw()
        return {"kty": "OKP", "crv": "Ed25519", "x": _encode_base64(public)}

    @cached_property
    def _private(self) -> Ed25519PrivateKey:
        # Imported late: most requests of a function neither sign nor publish keys.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self._seed)


class SigningKeys:
    """The keys at one time: one signs, all verify and are published."""

    def __init__(self, current: SigningKey, others: Sequence[SigningKey] = ()) -> None:
        self._current = current
        self._all = (current, *others)

    @property
    def kid(self) -> str:
        """The id of the key that signs."""
        return self._current.kid

    def sign(self, timestamp: int, body: bytes) -> str:
        """Sign a webhook; returns the value of `Webhook-Signature`. `timestamp`: in seconds."""
        signature = self._current.sign(b"%d.%b" % (timestamp, body))
        return f"t={timestamp},kid={self.kid},ed25519={_encode_base64(signature)}"

    def jwks(self) -> dict[str, list[dict[str, str]]]:
        """The public keys, as a JWK set."""
        return {
            "keys": [
                {**key.jwk_members, "kid": key.kid, "use": "sig", "alg": "EdDSA"}
                for key in self._all
            ]
        }

    def issue_token(self, subscription: str, generation: int, expires: int) -> str:
        """Make a token with which the holder of a wake acknowledges it. `expires`: in seconds."""
        claims = {"sub": subscription, "gen": generation, "exp": expires}
        payload = _encode_base64(orjson.dumps(claims))
        return f"{payload}.{_mac(self._current.token_key, payload)}"

    def verify_token(self, token: str, subscription: str, now: int) -> int | None:
        """The generation that a token is for; None if it is not one for this subscription.

        Raises `TokenExpired`. `now`: in seconds."""
        if len(token) > TOKEN_BYTES or not token.isascii():
            return None
        payload, _, mac = token.rpartition(".")
        # Compare with every key, so that the time taken reveals nothing about any of them.
        matches = [hmac.compare_digest(_mac(key.token_key, payload), mac) for key in self._all]
        if not any(matches):
            return None
        claims: dict[str, Any] = orjson.loads(
            urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        )
        if claims["sub"] != subscription:
            return None
        if now >= claims["exp"]:
            raise TokenExpired("the token has expired, and with it the wake that it was for")
        generation: int = claims["gen"]
        return generation


class KeySource(Protocol):
    async def get(self, now: int) -> SigningKeys:
        """The keys at a time in milliseconds."""


class KeySigner:
    """Signs and verifies with the keys of the moment; all times are in milliseconds."""

    def __init__(self, source: KeySource) -> None:
        self._source = source

    async def kid(self, now: int) -> str:
        return (await self._source.get(now)).kid

    async def jwks(self, now: int) -> dict[str, list[dict[str, str]]]:
        return (await self._source.get(now)).jwks()

    async def sign(self, body: bytes, now: int) -> str:
        """Sign a webhook; returns the value of `Webhook-Signature`."""
        return (await self._source.get(now)).sign(now // 1000, body)

    async def issue_token(self, subscription: str, generation: int, now: int) -> str:
        expires = now // 1000 + WAKE_TOKEN_SECONDS
        return (await self._source.get(now)).issue_token(subscription, generation, expires)

    async def verify_token(self, token: str, subscription: str, now: int) -> int | None:
        """The generation that a token is for; None if it is not one for this subscription.

        Raises `TokenExpired`."""
        return (await self._source.get(now)).verify_token(token, subscription, now // 1000)


def _mac(key: bytes, payload: str) -> str:
    return _encode_base64(hmac.digest(key, payload.encode(), "sha256"))


def _encode_base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
