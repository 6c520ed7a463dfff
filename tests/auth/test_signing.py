"""Signed names: the vectors of other implementations, and everything that must not verify."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.auth.signing import sign, verified
from tailrace.errors import CannotSign
from tailrace.limits import TOKEN_BYTES

SECRET = "s3Krit"

VECTORS = [
    (
        "s3Krit",
        "chat:2021",
        "ImNoYXQ6MjAyMSI=--f9ee45dbccb1da04d8ceb99cc820207804370ba0d06b46fc3b8b373af1315628",
    ),
    (
        "s3Krit",
        "chat/42",
        "ImNoYXQvNDIi--33cc46ca26203cfbb3135b159572ae221231c3a3ed94bf12c358ac0f75cf958c",
    ),
    (
        "s3Krit",
        "chat/42",
        "ImNoYXRcLzQyIg==--37e358fec58b9e7880407d30a8ed41f0d32dcb30c4c65040729ccc6787642c87",
    ),
    (
        "qwerty",
        "notifications/17",
        "Im5vdGlmaWNhdGlvbnMvMTci"
        "--cbb6d78d885ccd40cff0d4a8fc636d2686ec1b4376b2818e614a9ce84cb61dc0",
    ),
    (
        "s3Krit",
        "комната/é",
        "Ilx1MDQzYVx1MDQzZVx1MDQzY1x1MDQzZFx1MDQzMFx1MDQ0Mlx1MDQzMC9cdTAwZTki"
        "--0077cdb3c1a6aa20694b566855800637ca2ca7fa9d7518f85b2e1d27d339c074",
    ),
    (
        "s3Krit",
        "комната/é",
        "ItC60L7QvNC90LDRgtCwL8OpIg=="
        "--a2dbe0e37e49b4f78d5eff2d504630e15c84253c88098c5833c17cb4bc8c6e26",
    ),
    (
        "s3Krit",
        "room/🚀",
        "InJvb20vXHVkODNkXHVkZTgwIg=="
        "--b75788967bfbee27337bda2c4c2acb584922668707f80b6c9e2fb9e21a2ac53e",
    ),
    (
        "s3Krit",
        "room/🚀",
        "InJvb20v8J+agCI=--19bc66152a31aae9898b16f433e6aaae7fb17e104afed8081d99cb38a9cbf112",
    ),
    (
        "s3Krit",
        'a<b>&"c"\\d',
        "ImE8Yj4mXCJjXCJcXGQi--56ec180537031ead39e42537248c238a6247719a0f180ec81f81dd99d21b7210",
    ),
    (
        "s3Krit",
        'a<b>&"c"\\d',
        "ImFcdTAwM2NiXHUwMDNlXHUwMDI2XCJjXCJcXGQi"
        "--5fd9d387c363b42aa812bd38bda2213e4bda82b3f44cefd12460310044f914ae",
    ),
    (
        "s3Krit",
        "x~~~?>>>",
        "Inh+fn4/Pj4+Ig==--e627e553cfd31e9cd47d7a26eeb82b2ec381a7293eec0e14a8f6562224d7ad76",
    ),
]

GOOD = VECTORS[0][2]
ENCODED, MAC = GOOD.split("--")


def mac(data: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), data, hashlib.sha256).hexdigest()


def around(payload: bytes, secret: str = SECRET) -> str:
    """Properly signed, whatever it is."""
    encoded = b64encode(payload)
    return f"{encoded.decode()}--{mac(encoded, secret)}"


# What verifies


@pytest.mark.parametrize(("secret", "name", "signed"), VECTORS)
def test_what_other_languages_have_signed_verifies(secret: str, name: str, signed: str) -> None:
    assert verified(signed, [secret]) == name
    assert verified(signed, [secret.encode()]) == name


@pytest.mark.parametrize("vector", [0, 1, 3, 4, 6, 8, 10])
def test_a_name_is_signed_as_python_writes_json(vector: int) -> None:
    secret, name, signed = VECTORS[vector]
    assert sign(name, secret) == signed


def php(name: str) -> str:
    return json.dumps(name).replace("/", "\\/")


def ruby_or_javascript(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def go(name: str) -> str:
    text = json.dumps(name, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)


@pytest.mark.parametrize("written", [json.dumps, php, ruby_or_javascript, go])
@settings(max_examples=100, deadline=None, derandomize=True)
@given(name=names)
def test_every_way_to_write_json_verifies(written: object, name: str) -> None:
    assert callable(written)
    assert verified(around(written(name).encode()), [SECRET]) == name


@settings(max_examples=100, deadline=None, derandomize=True)
@given(name=names, secret=st.text(st.characters(codec="utf-8"), min_size=1))
def test_what_is_signed_verifies(name: str, secret: str) -> None:
    assert verified(sign(name, secret), [secret]) == name


@pytest.mark.parametrize("name", ["a--b", "--", " ", "a/../b", "\n", "%2F", "none", "null"])
def test_any_text_can_be_a_name(name: str) -> None:
    assert verified(sign(name, SECRET), [SECRET]) == name


def test_white_space_around_the_json_does_no_harm() -> None:
    assert verified(around(b' \n"chat/42"\t'), [SECRET]) == "chat/42"


@pytest.mark.parametrize("secrets", [["s3Krit", "b"], ["b", "s3Krit"], ["a", "s3Krit", "c"]])
def test_any_of_several_secrets_will_do(secrets: list[str]) -> None:
    assert verified(GOOD, secrets) == "chat:2021"


# What does not


@pytest.mark.parametrize("place", range(len(GOOD)))
@pytest.mark.parametrize("other", "Aa0=-+/ \n")
def test_a_change_in_any_place_is_noticed(place: int, other: str) -> None:
    changed = GOOD[:place] + other + GOOD[place + 1 :]
    assert changed == GOOD or verified(changed, [SECRET]) is None


@pytest.mark.parametrize("place", range(len(GOOD)))
def test_every_bit_counts(place: int) -> None:
    for bit in range(7):
        changed = GOOD[:place] + chr(ord(GOOD[place]) ^ 1 << bit) + GOOD[place + 1 :]
        assert verified(changed, [SECRET]) is None


@pytest.mark.parametrize("length", range(len(GOOD)))
def test_what_is_cut_off_does_not_verify(length: int) -> None:
    assert verified(GOOD[:length], [SECRET]) is None


@pytest.mark.parametrize("secret", ["", "S3Krit", "s3Krit ", "s3Kri", "qwerty", "\0", "s3Krit\0"])
def test_another_secret_verifies_nothing(secret: str) -> None:
    # HMAC fills keys up with zeros, so that a key with a zero more is the same key to it.
    assert secret == "s3Krit\0" or verified(GOOD, [secret]) is None


@pytest.mark.parametrize("secrets", [[], [""], [b""], ["", b"", ""]])
def test_an_empty_secret_verifies_nothing(secrets: list[str | bytes]) -> None:
    assert verified(around(b'"chat/42"', secret=""), secrets) is None


@pytest.mark.parametrize(
    "token",
    [
        "",
        "--",
        ENCODED,
        f"{ENCODED}--",
        f"--{MAC}",
        f"{ENCODED}-{MAC}",
        f"{ENCODED}---{MAC}",
        f"{ENCODED}--{MAC}--",
        f"{ENCODED}--{MAC}--{MAC}",
        f"--{ENCODED}--{MAC}",
        f"{ENCODED}--{MAC.upper()}",
        f"{ENCODED}--{MAC[:-1]}",
        f"{ENCODED}--{MAC}0",
        f"{ENCODED}--{MAC[:32]}",
        f" {GOOD}",
        f"{GOOD} ",
        f"{GOOD}\n",
        f"{GOOD}\r\n",
        f"\n{GOOD}",
        f"{GOOD}\0",
        f"{GOOD}é",
        GOOD.replace("-", "\u2010"),
        f"{ENCODED}--{MAC.translate(str.maketrans('0123456789', '０１２３４５６７８９'))}",
        quote(GOOD, safe=""),
        quote(quote(GOOD, safe=""), safe=""),
    ],
)
def test_another_shape_is_refused(token: str) -> None:
    assert verified(token, [SECRET]) is None


def test_a_signed_name_cannot_be_signed_once_more() -> None:
    assert verified(sign(GOOD, SECRET), [SECRET]) == GOOD, "it is a name like any other"


@pytest.mark.parametrize(
    "encoded",
    [
        "ImNoYXQ6MjAyMSI",
        "ImNoYXQ6MjAyMSI==",
        "ImNoYXQ6MjAyMSI===",
        "=ImNoYXQ6MjAyMSI",
        "ImNoYXQ6MjAyMSI=ImNoYXQ6MjAyMSI=",
        "ImNoYXQvNDIi=",
        "ImNoYXQvNDIi==",
        "ImNoYXQvNDIi====",
        "ImNo YXQvNDIi",
        "ImNo\nYXQvNDIi",
        "ImNoYXQvNDIi\n",
        " ImNoYXQvNDIi",
        "",
        urlsafe_b64encode(b'"x~~~?>>>"').decode(),
        "ImNoYXQvNDIié",
    ],
)
def test_base64_has_one_form(encoded: str) -> None:
    assert verified(f"{encoded}--{mac(encoded.encode())}", [SECRET]) is None


@pytest.mark.parametrize(
    "payload",
    [b"chat/42", b"", b'""', b"null", b"42", b"true", b'["chat/42"]', b'{"a":"chat/42"}',
     b'{"_rails":{"message":"ImNoYXQvNDIi","exp":null,"pur":null}}', b'"chat/42" x',
     b'"chat/42""b"', b"'chat/42'", b'"chat/42', b'"a\n"', b'"\\ud800"', b'"a\\udc00b"',
     b'"\\ude80\\ud83d"', b'"\xff"', b'"\xed\xa0\x80"', b'\xef\xbb\xbf"chat/42"', b"NaN"],
)  # fmt: skip
def test_what_is_signed_must_be_a_json_string_that_is_a_name(payload: bytes) -> None:
    assert verified(around(payload), [SECRET]) is None


def test_the_signature_is_hmac_sha256_over_the_base64() -> None:
    name, encoded = b'"chat/42"', b64encode(b'"chat/42"')
    key = SECRET.encode()
    wrong = [
        hmac.new(key, encoded, hashlib.sha1).hexdigest(),
        hmac.new(key, encoded, hashlib.sha512).hexdigest(),
        hmac.new(key, encoded, hashlib.sha3_256).hexdigest(),
        hmac.new(key, name, hashlib.sha256).hexdigest(),
        hmac.new(key, b"chat/42", hashlib.sha256).hexdigest(),
        hashlib.sha256(key + encoded).hexdigest(),
        b64encode(hmac.digest(key, encoded, "sha256")).decode(),
    ]
    for each in wrong:
        assert verified(f"{encoded.decode()}--{each}", [SECRET]) is None


def test_the_signature_of_another_name_does_not_fit() -> None:
    first, second = sign("chat/1", SECRET), sign("chat/2", SECRET)
    mixed = f"{first.split('--')[0]}--{second.split('--')[1]}"
    assert verified(mixed, [SECRET]) is None


def test_what_is_too_long_is_not_looked_at() -> None:
    longest = "x" * ((TOKEN_BYTES - 66) // 4 * 3 - 2)
    assert verified(sign(longest, SECRET), [SECRET]) == longest
    assert verified(sign(longest + "xxx", SECRET), [SECRET]) is None


# What cannot be signed


@pytest.mark.parametrize("name", ["", "\ud800", "a\udcff"])
def test_what_is_no_name_is_not_signed(name: str) -> None:
    with pytest.raises(CannotSign):
        sign(name, SECRET)


@pytest.mark.parametrize("secret", ["", b""])
def test_nothing_is_signed_with_an_empty_secret(secret: str | bytes) -> None:
    with pytest.raises(CannotSign, match="empty"):
        sign("chat/42", secret)
