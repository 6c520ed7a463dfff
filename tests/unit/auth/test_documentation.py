"""`docs/auth.md`: its examples run, and it agrees with the code."""

from __future__ import annotations

import re
import time

import pytest

from devtools.processes import ROOT
from tailrace import errors
from tailrace.auth.jwks import KINDS
from tailrace.auth.jws import HASHES
from tailrace.auth.keys import Keys
from tailrace.auth.signed_names import verify_name
from tailrace.auth.tokens import SCOPES, TokenVerifier
from tailrace.log.paths import Patterns
from tailrace.settings import Settings
from tests.support.auth import SECRET

PAGE = (ROOT / "docs" / "auth.md").read_text()


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def value_after(code: str, variable: str) -> str:
    """Run an example with a secret, and return one of its variables."""
    names = {"secret": SECRET}
    exec(code, names)
    return names[variable]


def names_and_tokens(language: str) -> tuple[list[str], list[str]]:
    blocks = examples(language)
    tokens = [each for each in blocks if "claims" in each]
    return [each for each in blocks if "signed" in each and each not in tokens], tokens


def test_the_examples_sign_names_that_verify() -> None:
    names, _ = names_and_tokens("python")
    assert len(names) == 2
    for code in names:
        assert verify_name(value_after(code, "signed"), [SECRET]) == "chat/room-1"


def test_the_examples_create_tokens_that_are_accepted() -> None:
    _, (code,) = names_and_tokens("python")
    assert_taken(value_after(code, "token"))


def assert_taken(token: str) -> None:
    settings = Settings(secret=SECRET)
    grant = TokenVerifier(settings, Keys.from_settings(settings)).verify_bearer(
        token, time.time_ns() // 1_000_000
    )
    assert grant.scopes == {"read", "write"}
    assert grant.streams == Patterns(("chat/*",))


@pytest.mark.parametrize("language", ["ruby", "php"])
def test_the_other_languages_have_examples_of_both(language: str) -> None:
    names, tokens = names_and_tokens(language)
    assert (len(names), len(tokens)) == (1, 1)


@pytest.mark.parametrize(
    "kind",
    [errors.CredentialsMissing, errors.BadCredentials, errors.TokenExpired, errors.NotAllowed],
)
def test_every_error_is_documented_with_its_challenge(kind: type[errors.BadCredentials]) -> None:
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{kind.code}` |"))
    assert row.endswith(f"| `{kind.challenge}` |")


def test_every_scope_algorithm_and_setting_is_documented() -> None:
    for word in (*SCOPES, *HASHES, *KINDS):
        assert word in PAGE
    about = ["ACCESS", "SECRET", "STREAMS_SECRET", "TURBO_STREAMS_SECRET", "CABLE_READY_SECRET",
             "PUBLIC_STREAMS", "JWT_SECRET", "JWT_ALGORITHM", "JWKS", "JWT_AUDIENCE", "JWT_ISSUER",
             "JWT_MAX_AGE", "JWT_PARAM", "ENFORCE_JWT", "SKIP_AUTH", "BROADCAST_KEY"]  # fmt: skip
    assert [name for name in about if f"TAILRACE_{name}" not in PAGE] == []
