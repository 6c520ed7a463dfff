"""Signatures of webhooks and tokens of wakes: what verifies, for how long, and what never does."""

from __future__ import annotations

import base64
import hashlib
import json
from itertools import combinations

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tailrace.errors import TokenExpired
from tailrace.limits import TOKEN_BYTES
from tailrace.protocols.subscriptions.signing import SigningKey, SigningKeys

NOW = 1_800_000_000
OLD, NEW = SigningKey(b"old" * 16), SigningKey(b"new" * 16)
KEYS = SigningKeys(NEW, [OLD])


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def verify(jwks: dict[str, list[dict[str, str]]], header: str, body: bytes) -> bool:
    fields = dict(field.split("=", 1) for field in header.split(","))
    (jwk,) = [key for key in jwks["keys"] if key["kid"] == fields["kid"]]
    public = Ed25519PublicKey.from_public_bytes(decode(jwk["x"]))
    try:
        public.verify(decode(fields["ed25519"]), fields["t"].encode() + b"." + body)
    except InvalidSignature:
        return False
    return True


def test_signatures_verify_with_the_published_key() -> None:
    header = KEYS.sign(NOW, b'{"a":1}')
    assert header.startswith(f"t={NOW},kid=ds_")
    assert "=" not in header.rpartition("ed25519=")[2]
    assert verify(KEYS.jwks(), header, b'{"a":1}')
    assert not verify(KEYS.jwks(), header, b'{"a":2}')
    assert not verify(KEYS.jwks(), header.replace(f"t={NOW}", f"t={NOW + 1}"), b'{"a":1}')


def test_signatures_of_older_keys_verify_too() -> None:
    header = SigningKeys(OLD).sign(NOW, b"x")
    assert verify(KEYS.jwks(), header, b"x")
    assert KEYS.kid == NEW.kid != OLD.kid


def test_the_published_keys() -> None:
    keys = KEYS.jwks()["keys"]
    assert [key["kid"] for key in keys] == [NEW.kid, OLD.kid]
    for key in keys:
        assert key == {
            "kty": "OKP", "crv": "Ed25519", "x": key["x"], "kid": key["kid"], "use": "sig",
            "alg": "EdDSA",
        }  # fmt: skip
        canonical = f'{{"crv":"Ed25519","kty":"OKP","x":"{key["x"]}"}}'
        thumbprint = hashlib.sha256(canonical.encode()).digest()
        assert key["kid"] == "ds_" + base64.urlsafe_b64encode(thumbprint).decode().rstrip("=")


def test_keys_are_the_same_for_the_same_secret() -> None:
    """Other values would make every stored token and published key useless."""
    key = SigningKey(b"secret")
    assert key.kid == "ds_J511p23BIKWU2IIQYfCTPimkZjVKiNNfQrSrIvc1OL0"
    assert key.token_key.hex() == "4e6dc2d7ca2dff9e3d31761355e1f452dbf99faca75534bb0e32ec91b7fd9f9e"


def test_tokens_are_of_a_subscription_and_a_generation() -> None:
    token = KEYS.issue_token("jobs/ä", 7, NOW + 60)
    assert KEYS.verify_token(token, "jobs/ä", NOW) == 7
    assert KEYS.verify_token(token, "jobs", NOW) is None
    with pytest.raises(TokenExpired):
        KEYS.verify_token(token, "jobs/ä", NOW + 60)
    # An expired token of another subscription tells nothing.
    assert KEYS.verify_token(token, "jobs", NOW + 60) is None


def test_tokens_of_older_keys_verify_until_they_are_dropped() -> None:
    token = SigningKeys(OLD).issue_token("jobs", 7, NOW + 60)
    assert KEYS.verify_token(token, "jobs", NOW) == 7
    assert SigningKeys(NEW).verify_token(token, "jobs", NOW) is None


def test_forged_tokens_are_refused() -> None:
    token = KEYS.issue_token("jobs", 7, NOW + 60)
    payload, _, mac = token.partition(".")
    claims = json.loads(decode(payload))
    assert claims == {"sub": "jobs", "gen": 7, "exp": NOW + 60}
    better = base64.urlsafe_b64encode(json.dumps(claims | {"gen": 8}).encode()).decode().rstrip("=")
    forged = [
        "", ".", "a", f"{payload}.", f".{mac}", f"{better}.{mac}", payload, mac, f" {token}",
        f"{token}=", f"{token}.", f"{token}.{mac}", f"{payload}..{mac}", token.upper(), "ü.ü",
        f"{payload}.{mac[:-1]}", f"{payload}.{mac}A", "a" * (TOKEN_BYTES + 1), "\0", "null.null",
        f"{mac}.{payload}", SigningKeys(SigningKey(b"other")).issue_token("jobs", 7, NOW + 60),
    ]  # fmt: skip
    forged += [token[:n] + token[n + 1 :] for n in range(len(token))]
    forged += [token[:n] + ("A" if token[n] != "A" else "B") + token[n + 1 :] for n in range(90)]
    for each in forged:
        assert KEYS.verify_token(each, "jobs", NOW) is None, each


def test_each_purpose_has_a_key_of_its_own() -> None:
    """A signature of a webhook, whose body a client may know, is no token, nor the reverse."""
    key = SigningKey(b"secret")
    for one, other in combinations((b"secret", key.token_key, key._seed), 2):
        assert one != other
