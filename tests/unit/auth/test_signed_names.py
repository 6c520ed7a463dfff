"""Signed names: vectors of other implementations, and everything that must not verify."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.auth.signed_names import sign, verify_name
from tailrace.errors import CannotSign
from tailrace.limits import TOKEN_BYTES

SECRET = "s3Krit"

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())["signed_names"]
"""Names that servers and libraries in other languages signed or accepted."""

GOOD = VECTORS[0]["signed"]
ENCODED, MAC = GOOD.split("--")


def mac(data: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), data, hashlib.sha256).hexdigest()


def around(payload: bytes, secret: str = SECRET) -> str:
    """Sign any payload correctly."""
    encoded = b64encode(payload)
    return f"{encoded.decode()}--{mac(encoded, secret)}"


# What verifies


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['name']} {vector['by']}")
def test_names_signed_in_other_languages_verify(vector: dict[str, str]) -> None:
    secret, signed = vector["secret"], vector["signed"]
    assert verify_name(signed, [secret]) == vector["name"]
    assert verify_name(signed, [secret.encode()]) == vector["name"]


def test_a_name_is_signed_as_python_writes_json() -> None:
    ours = [vector for vector in VECTORS if vector["by"] == "any" or "Python" in vector["by"]]
    assert len(ours) == 7
    for vector in ours:
        assert sign(vector["name"], vector["secret"]) == vector["signed"]


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
@settings(max_examples=40, deadline=None, derandomize=True)
@given(name=names)
def test_every_way_to_write_json_verifies(written: object, name: str) -> None:
    assert callable(written)
    assert verify_name(around(written(name).encode()), [SECRET]) == name


@settings(max_examples=40, deadline=None, derandomize=True)
@given(name=names, secret=st.text(st.characters(codec="utf-8"), min_size=1))
def test_signed_names_verify(name: str, secret: str) -> None:
    assert verify_name(sign(name, secret), [secret]) == name


@pytest.mark.parametrize("name", ["a--b", "--", " ", "a/../b", "\n", "%2F", "none", "null"])
def test_any_text_can_be_a_name(name: str) -> None:
    assert verify_name(sign(name, SECRET), [SECRET]) == name


def test_white_space_around_the_json_is_ignored() -> None:
    assert verify_name(around(b' \n"chat/42"\t'), [SECRET]) == "chat/42"


@pytest.mark.parametrize("secrets", [["s3Krit", "b"], ["b", "s3Krit"], ["a", "s3Krit", "c"]])
def test_any_of_several_secrets_verifies(secrets: list[str]) -> None:
    assert verify_name(GOOD, secrets) == "chat:2021"


# What does not


def test_any_changed_character_is_refused() -> None:
    for place, here in enumerate(GOOD):
        flipped = [chr(ord(here) ^ 1 << bit) for bit in range(8)]
        for other in {*flipped, *"Aa0=-+/ \n"} - {here}:
            assert verify_name(GOOD[:place] + other + GOOD[place + 1 :], [SECRET]) is None
        assert verify_name(GOOD[:place] + GOOD[place + 1 :], [SECRET]) is None
        assert verify_name(GOOD[:place] + here + GOOD[place:], [SECRET]) is None


def test_truncated_name_is_refused() -> None:
    for length in range(len(GOOD)):
        assert verify_name(GOOD[:length], [SECRET]) is None


@pytest.mark.parametrize("secret", ["", "S3Krit", "s3Krit ", "s3Kri", "s3Krit1", "qwerty", "none"])
def test_another_secret_verifies_nothing(secret: str) -> None:
    assert verify_name(GOOD, [secret]) is None


@pytest.mark.parametrize("secrets", [[], [""], [b""], ["", b"", ""]])
def test_an_empty_secret_verifies_nothing(secrets: list[str | bytes]) -> None:
    assert verify_name(around(b'"chat/42"', secret=""), secrets) is None


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
def test_malformed_signed_name_is_refused(token: str) -> None:
    assert verify_name(token, [SECRET]) is None


def test_a_name_that_was_signed_twice_is_another_name() -> None:
    assert verify_name(sign(GOOD, SECRET), [SECRET]) == GOOD


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
    assert verify_name(f"{encoded}--{mac(encoded.encode())}", [SECRET]) is None


@pytest.mark.parametrize(
    "payload",
    [b"chat/42", b"", b'""', b"null", b"42", b"true", b'["chat/42"]', b'{"a":"chat/42"}',
     b'{"_rails":{"message":"ImNoYXQvNDIi","exp":null,"pur":null}}', b'"chat/42" x',
     b'"chat/42""b"', b"'chat/42'", b'"chat/42', b'"a\n"', b'"\\ud800"', b'"a\\udc00b"',
     b'"\\ude80\\ud83d"', b'"\xff"', b'"\xed\xa0\x80"', b'\xef\xbb\xbf"chat/42"', b"NaN"],
)  # fmt: skip
def test_signed_payload_must_be_a_nonempty_json_string(payload: bytes) -> None:
    assert verify_name(around(payload), [SECRET]) is None


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
        assert verify_name(f"{encoded.decode()}--{each}", [SECRET]) is None


def test_signature_of_another_name_is_refused() -> None:
    first, second = sign("chat/1", SECRET), sign("chat/2", SECRET)
    mixed = f"{first.split('--')[0]}--{second.split('--')[1]}"
    assert verify_name(mixed, [SECRET]) is None


def test_too_long_name_is_refused() -> None:
    longest = "x" * ((TOKEN_BYTES - 66) // 4 * 3 - 2)
    assert verify_name(sign(longest, SECRET), [SECRET]) == longest
    assert verify_name(sign(longest + "xxx", SECRET), [SECRET]) is None


# What cannot be signed


@pytest.mark.parametrize("name", ["", "\ud800", "a\udcff"])
def test_invalid_names_are_not_signed(name: str) -> None:
    with pytest.raises(CannotSign):
        sign(name, SECRET)


def test_nothing_is_signed_with_an_empty_secret() -> None:
    for secret in ("", b""):
        with pytest.raises(CannotSign, match="empty"):
            sign("chat/42", secret)
