"""The part of the access rules that the edge gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.aws.edge.key_document import VALUE_BYTES, build_entries
from tailrace.aws.edge.origin_secret import derive_key
from tailrace.settings import Settings

ORIGIN = b"the origin's secret"


def access_entry(**settings: Any) -> dict[str, Any]:
    authorizer: dict[str, Any] = json.loads(build_entries(Settings(**settings), ORIGIN)["access"])
    return authorizer


def test_the_edge_gets_the_secrets_and_the_token_settings() -> None:
    assert access_entry(
        streams_secret="for-names", jwt_secret="for-tokens", jwt_audience="us", jwt_issuer="them",
        jwt_max_age=60, jwt_param="who", enforce_jwt=True,
    ) == {
        "signed": ["for-names"], "tokens": ["for-tokens"], "bearer": True, "audience": "us",
        "issuer": "them", "age": 60, "param": "who", "identify": True, "enforce": True,
        "public": False, "proof": derive_key(ORIGIN),
    }  # fmt: skip


def test_nothing_else_of_the_access_secret_is_at_the_edge() -> None:
    text = json.dumps(build_entries(Settings(secret="one", broadcast_key="two"), ORIGIN))
    assert "two" not in text
    assert ORIGIN.decode() not in text


def test_two_secrets_of_a_kind_are_enough_for_a_rotation() -> None:
    assert access_entry(secret="one two three")["signed"] == ["one", "two"]


def test_non_ascii_secrets_are_left_out() -> None:
    assert access_entry(secret="geheim-für-alle plain")["tokens"] == ["plain"]
    assert access_entry(secret="x", jwt_audience="ströme")["bearer"] is False


@pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
def test_bearer_tokens_of_other_algorithms_are_not_for_the_edge(algorithm: str) -> None:
    assert access_entry(secret="x", jwt_algorithm=algorithm)["bearer"] is False


def test_identification_that_is_turned_off_is_not_enforced() -> None:
    authorizer = access_entry(secret="x", enforce_jwt=True, skip_auth=True)
    assert (authorizer["identify"], authorizer["enforce"]) == (False, False)


@pytest.mark.parametrize("length", [64, 65, 128, 200])
def test_long_secrets_go_as_they_are_as_long_as_there_is_room(length: int) -> None:
    entries = build_entries(Settings(secret=f"{'a' * length} {'b' * length}"), ORIGIN)
    assert len(entries["access"]) <= VALUE_BYTES
    assert json.loads(entries["access"])["signed"][0] == "a" * length


def test_access_settings_that_do_not_fit_are_left_out() -> None:
    assert build_entries(Settings(secret="a" * 1000, public_streams="a"), ORIGIN) == {}


def test_public_patterns_go_in_the_spelling_that_the_edge_understands() -> None:
    settings = Settings(public_streams="news/*, status/** one *, a%2Fb x*y café ***")
    entries = build_entries(settings, ORIGIN)
    assert entries["public"] == "news/* status/** one *"
    assert json.loads(entries["access"])["public"] is True


@pytest.mark.parametrize(("setting", "patterns"), [("true", "**"), ("", None), ("false", None)])
def test_all_streams_or_none_may_be_public(setting: str, patterns: str | None) -> None:
    assert build_entries(Settings(public_streams=setting), ORIGIN).get("public") == patterns


def test_patterns_that_do_not_fit_are_left_out() -> None:
    many = " ".join(f"stream-{number}/**" for number in range(100))
    public = build_entries(Settings(public_streams=many), ORIGIN)["public"]
    assert 900 < len(public) <= VALUE_BYTES
    assert set(public.split()) < set(many.split())
