"""Credentials of a request, and ambiguous ones."""

from __future__ import annotations

import pytest

from tailrace.auth.credentials import NONE, Credentials, parse_credentials


def header(name: str, value: str) -> tuple[bytes, bytes]:
    return name.encode(), value.encode()


def test_request_without_credentials() -> None:
    assert parse_credentials([], {}) == NONE
    assert parse_credentials([header("accept", "*/*")], {"offset": ["-1"], "live": ["sse"]}) == NONE


@pytest.mark.parametrize("value", ["Bearer t", "bearer t", "BEARER t", " Bearer  t ", "Bearer t\t"])
def test_a_bearer_token_is_in_authorization(value: str) -> None:
    assert parse_credentials([header("authorization", value)], {}) == Credentials(bearer="t")


@pytest.mark.parametrize("value", ["Basic dTpw", "Digest x", "t", "Bearert", "", "Bearer-t x"])
def test_other_schemes_are_ignored(value: str) -> None:
    assert parse_credentials([header("authorization", value)], {}) == NONE


@pytest.mark.parametrize("value", ["Bearer", "Bearer ", "Bearer a b", "Bearer a, Bearer b"])
def test_a_bearer_token_is_one_word(value: str) -> None:
    assert parse_credentials([header("authorization", value)], {}).fault is not None


@pytest.mark.parametrize(
    "value", [b"Bearer \xff", b"Bearer a\x00b", b"Bearer a\x7f", b"Bearer \xa0"]
)
def test_a_bearer_token_is_plain_text(value: bytes) -> None:
    assert parse_credentials([(b"authorization", value)], {}).fault is not None


def test_a_signed_name_is_in_the_header_or_in_the_query() -> None:
    assert parse_credentials([header("x-signed", "s")], {}) == Credentials(signed="s")
    assert parse_credentials([], {"signed": ["s"]}) == Credentials(signed="s")


def test_an_identification_token_is_in_the_header_or_in_the_query() -> None:
    assert parse_credentials([header("x-jid", "j")], {}) == Credentials(jid="j")
    assert parse_credentials([], {"jid": ["j"]}) == Credentials(jid="j")


def test_the_parameter_of_an_identification_token_may_have_another_name() -> None:
    assert parse_credentials([header("x-token", "j")], {}, "token") == Credentials(jid="j")
    assert parse_credentials([], {"token": ["j"]}, "token") == Credentials(jid="j")
    assert parse_credentials([header("x-jid", "j")], {"jid": ["j"]}, "token") == NONE


def test_request_may_carry_several_kinds() -> None:
    headers = [header("authorization", "Bearer b"), header("x-signed", "s")]
    assert parse_credentials(headers, {"jid": ["j"]}) == Credentials("b", "s", "j")


@pytest.mark.parametrize("name", ["signed", "jid"])
def test_the_same_value_in_both_places_is_one(name: str) -> None:
    both = parse_credentials([header(f"x-{name}", "v")], {name: ["v"]})
    assert both == parse_credentials([header(f"x-{name}", "v")], {})


@pytest.mark.parametrize("name", ["signed", "jid"])
def test_an_empty_value_is_none(name: str) -> None:
    assert parse_credentials([header(f"x-{name}", "")], {name: [""]}) == NONE
    assert parse_credentials([header(f"x-{name}", "v")], {name: [""]}).fault is None
    assert parse_credentials([header(f"x-{name}", "")], {name: ["v"]}).fault is None
    assert parse_credentials([], {name: []}) == NONE


@pytest.mark.parametrize("name", ["signed", "jid"])
def test_different_values_in_both_places_are_bad(name: str) -> None:
    for one, two in (("a", "b"), ("a", "a "), ("a", "A")):
        assert parse_credentials([header(f"x-{name}", one)], {name: [two]}).fault is not None


@pytest.mark.parametrize("name", ["signed", "jid"])
@pytest.mark.parametrize("values", [["a", "b"], ["a", "a"], ["", "a"], ["a", ""], ["", ""]])
def test_a_repeated_value_is_bad(name: str, values: list[str]) -> None:
    assert parse_credentials([], {name: values}).fault == f"{name} is sent twice"
    repeated = [header(f"x-{name}", value) for value in values]
    assert parse_credentials(repeated, {}).fault == f"{name} is sent twice"


@pytest.mark.parametrize("second", ["Bearer a", "Bearer b", "Basic dTpw", ""])
def test_a_repeated_authorization_is_bad(second: str) -> None:
    headers = [header("authorization", "Bearer a"), header("authorization", second)]
    assert parse_credentials(headers, {}).fault == "Authorization is sent twice"
    assert parse_credentials(headers[::-1], {}).fault == "Authorization is sent twice"


def test_one_ambiguous_credential_invalidates_all() -> None:
    headers = [header("authorization", "Bearer b"), header("x-signed", "s")]
    bad = parse_credentials(headers, {"signed": ["t"]})
    assert bad == Credentials(fault="signed differs between the header and the query")


def test_repr_hides_credentials() -> None:
    all_three = Credentials("s3Krit-b", "s3Krit-s", "s3Krit-j")
    for text in (repr(all_three), str(all_three), f"{[all_three]}"):
        assert "s3Krit" not in text
    assert repr(all_three) == "<Credentials: bearer, signed, jid>"
    assert repr(NONE) == "<Credentials: none>"
    assert repr(Credentials(fault="signed is sent twice")) == "<Credentials: none (bad)>"


@pytest.mark.parametrize("secret", ["s3Krit", "s3Krit twice"])
def test_fault_does_not_repeat_the_credentials(secret: str) -> None:
    for bad in (
        parse_credentials([header("authorization", f"Bearer x {secret}")], {}),
        parse_credentials([], {"signed": [secret, secret]}),
        parse_credentials([header("x-jid", secret)], {"jid": ["other"]}),
    ):
        assert bad.fault is not None
        assert "s3Krit" not in bad.fault
