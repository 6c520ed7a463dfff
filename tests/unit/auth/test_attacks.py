"""Attacks on tokens, one test each; every token here must be refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tailrace.auth.jws import HASHES, Jws
from tailrace.auth.keys import Keys
from tailrace.auth.tokens import TokenVerifier
from tailrace.errors import BadCredentials
from tailrace.limits import TOKEN_BYTES
from tailrace.settings import Settings
from tests.support.auth import CLAIMS, NOW, SECRET, bearer, by_hand, part

ADMIN = CLAIMS | {"scope": "admin"}


def attempt(token: str, **overrides: Any) -> None:
    settings = Settings(**({"jwt_secret": SECRET} | overrides))
    both = TokenVerifier(settings, Keys.from_settings(settings))
    with pytest.raises(BadCredentials):
        both.verify_bearer(token, NOW)
    with pytest.raises(BadCredentials):
        both.verify_identity(token, NOW)


@pytest.fixture(scope="module")
def private() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def public_keys(private: rsa.RSAPrivateKey, tmp_path: Path) -> dict[str, Any]:
    """Settings of a server that accepts tokens of the private key."""
    jwk = jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [{**jwk, "kid": "1"}]}))
    return {"jwt_algorithm": "RS256", "jwks": str(file)}


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", ""])
@pytest.mark.parametrize("signature", ["", "AAAA"])
def test_no_signature(name: str, signature: str) -> None:
    attempt(f"{part({'alg': name, 'typ': 'JWT'})}.{part(ADMIN)}.{signature}")


def test_removed_signature() -> None:
    header, claims, _ = bearer().split(".")
    attempt(f"{header}.{claims}.")
    attempt(f"{header}.{claims}")


def test_no_algorithm_at_all() -> None:
    attempt(by_hand({"typ": "JWT"}, ADMIN))
    attempt(by_hand({"alg": None}, ADMIN))


@pytest.mark.parametrize("algorithm", [["HS256"], {"HS256": 1}, 256, True, "hs256", "HS256 "])
def test_malformed_algorithm(algorithm: object) -> None:
    attempt(by_hand({"alg": algorithm}, ADMIN))


def test_weaker_hash_than_configured() -> None:
    attempt(by_hand({"alg": "HS1"}, ADMIN, kind="sha1"))
    settings = Settings(jwt_secret=SECRET, jwt_algorithm="HS512")
    with pytest.raises(BadCredentials, match="algorithm"):
        TokenVerifier(settings, Keys.from_settings(settings)).verify_bearer(
            by_hand({"alg": "HS256"}, ADMIN), NOW
        )


def test_hash_other_than_the_header_names() -> None:
    attempt(by_hand({"alg": "HS256"}, ADMIN, kind="sha512"))
    attempt(by_hand({"alg": "HS512"}, ADMIN, kind="sha256"))


def test_the_public_key_as_a_secret(
    private: rsa.RSAPrivateKey, public_keys: dict[str, Any]
) -> None:
    """A server that trusts the header would use the public key as an HMAC secret."""
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    public = private.public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, spki)
    der = public.public_bytes(serialization.Encoding.DER, spki)
    settings = Settings(**public_keys, jwt_secret="none")
    both = TokenVerifier(settings, Keys.from_settings(settings))
    for secret in (pem, pem.strip(), der, Path(public_keys["jwks"]).read_bytes()):
        forged = by_hand({"alg": "HS256", "kid": "1"}, ADMIN, secret.decode("latin-1"))
        for judge in (both.verify_bearer, both.verify_identity):
            with pytest.raises(BadCredentials):
                judge(forged, NOW)
    assert (
        both.verify_bearer(jwt.encode(ADMIN, private, "RS256", {"kid": "1"}), NOW).subject == "ada"
    )


def test_token_of_a_private_key_with_shared_secrets(private: rsa.RSAPrivateKey) -> None:
    attempt(jwt.encode(ADMIN, private, "RS256"))


def test_another_algorithm_of_the_same_key(
    private: rsa.RSAPrivateKey, public_keys: dict[str, Any]
) -> None:
    for algorithm in ("PS256", "RS384", "RS512"):
        attempt(jwt.encode(ADMIN, private, algorithm, {"kid": "1"}), **public_keys)


def test_key_carried_by_the_token(public_keys: dict[str, Any]) -> None:
    mine = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    jwk = jwt.algorithms.RSAAlgorithm.to_jwk(mine.public_key(), as_dict=True)
    for header in ({"jwk": jwk}, {"jwk": jwk, "kid": "1"}, {"x5c": ["MIIB"]}):
        attempt(jwt.encode(ADMIN, mine, "RS256", header), **public_keys)


@pytest.mark.parametrize("field", ["jwk", "jku", "x5u", "x5c"])
def test_header_with_a_key_url(field: str) -> None:
    """Refused even if the signature is valid: no legitimate token has such a field."""
    attempt(by_hand({"alg": "HS256", field: "https://attacker.example/keys"}, ADMIN))


@pytest.mark.parametrize("critical", [["exp"], ["b64"], [], None, "exp", ["x-mine"]])
def test_a_header_with_critical_extensions(critical: object) -> None:
    attempt(by_hand({"alg": "HS256", "crit": critical, "x-mine": True}, ADMIN))


def test_unencoded_payload() -> None:
    attempt(by_hand({"alg": "HS256", "b64": False}, ADMIN))
    attempt(by_hand({"alg": "HS256", "b64": False, "crit": ["b64"]}, ADMIN))


def test_key_id_that_is_a_path_or_a_query() -> None:
    for kid in ("../../dev/null", "' OR 1=1 --", "/proc/self/environ", "\0"):
        attempt(by_hand({"alg": "HS256", "kid": kid}, ADMIN, secret=""))
        attempt(by_hand({"alg": "HS256", "kid": kid}, ADMIN, secret="\0"))


def test_an_empty_secret() -> None:
    for secret in ("", " ", "none", "\n\t"):
        attempt(by_hand({"alg": "HS256"}, ADMIN, secret=""), jwt_secret=secret)
    jws = Jws.parse(by_hand({"alg": "HS256"}, ADMIN, secret=""), HASHES)
    assert not jws.signed_with([b"", b"x"])


def test_another_secret() -> None:
    attempt(by_hand({"alg": "HS256"}, ADMIN, secret=f"{SECRET}x"))
    attempt(by_hand({"alg": "HS256"}, ADMIN, secret=SECRET.upper()))
    attempt(by_hand({"alg": "HS256"}, ADMIN, secret=f"{SECRET} new"), jwt_secret=f"{SECRET} new")


def test_the_claims_of_one_token_with_the_signature_of_another() -> None:
    weak, strong = bearer().split("."), by_hand({"alg": "HS256"}, ADMIN, "mine").split(".")
    attempt(".".join([weak[0], strong[1], weak[2]]))
    attempt(".".join([strong[0], strong[1], weak[2]]))


def test_any_changed_character() -> None:
    token = bearer()
    settings = Settings(jwt_secret=SECRET)
    ours = TokenVerifier(settings, Keys.from_settings(settings))
    assert ours.verify_bearer(token, NOW)
    for place, was in enumerate(token):
        for other in {chr(ord(was) ^ 1 << bit) for bit in range(8)} | {"=", ".", " ", "\n", "A"}:
            if other != was:
                with pytest.raises(BadCredentials):
                    ours.verify_bearer(token[:place] + other + token[place + 1 :], NOW)


@pytest.mark.parametrize("length", [0, 1, 10, -1, -2, -10, -43])
def test_truncated_token(length: int) -> None:
    attempt(bearer()[:length])


@pytest.mark.parametrize(
    ("before", "after"),
    [("", "\n"), ("", " "), (" ", ""), ("", "="), ("", "=="), ("", "."), (".", ""), ("", "\0"),
     ("Bearer ", ""), ("", "é"), ("", ".x"), ('"', '"')],
)  # fmt: skip
def test_extra_characters_around_the_token(before: str, after: str) -> None:
    attempt(f"{before}{bearer()}{after}")


def test_five_parts_like_an_encrypted_token() -> None:
    attempt(f"{bearer()}.AAAA.AAAA")


def test_standard_base64_alphabet() -> None:
    odd = by_hand({"alg": "HS256"}, CLAIMS | {"sub": "~~~???>>>"})
    assert set("-_") & set(odd)
    attempt(odd.translate(str.maketrans("-_", "+/")))


@pytest.mark.parametrize("header", [[], "HS256", 1, None, b"", b"{", b"\xff", b"{}{}", b"[" * 3000])
def test_header_that_is_not_an_object(header: object) -> None:
    attempt(by_hand(header, ADMIN))


@pytest.mark.parametrize("claims", [[], "admin", 1, None, b"", b"{", b"\xff", b"{}{}", b"[" * 3000])
def test_claims_that_are_not_an_object(claims: object) -> None:
    attempt(by_hand({"alg": "HS256"}, claims))


def test_too_long_token() -> None:
    def sized(size: int) -> str:
        return by_hand({"alg": "HS256"}, {**ADMIN, "ext": "x" * size})

    settings = Settings(jwt_secret=SECRET)
    size = next(n for n in range(8_000, 0, -1) if len(sized(n)) <= TOKEN_BYTES)
    assert TokenVerifier(settings, Keys.from_settings(settings)).verify_identity(sized(size), NOW)
    attempt(sized(size + 3))
    attempt("a" * 1_000_000)
    attempt("a." * 500_000)


def test_errors_do_not_repeat_the_token() -> None:
    for token in (bearer(secret=SECRET[1:]), bearer(aud="other"), bearer(scope=1), "not-a-token"):
        settings = Settings(jwt_secret=SECRET)
        with pytest.raises(BadCredentials) as refusal:
            TokenVerifier(settings, Keys.from_settings(settings)).verify_bearer(token, NOW)
        message = str(refusal.value)
        assert SECRET not in message
        assert not any(part and part in message for part in token.split("."))
        assert "other" not in message
