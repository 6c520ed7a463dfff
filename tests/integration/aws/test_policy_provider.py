"""The authorizer of a deployed function: what the access secret says, and when."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from tailrace.auth.authorizer import Authorizer, Operation
from tailrace.auth.credentials import Credentials
from tailrace.auth.signed_names import sign
from tailrace.aws.runtime import policy_provider
from tailrace.aws.runtime.policy_provider import (
    KEEP_SECONDS,
    RETRY_SECONDS,
    SecretPolicyProvider,
    apply_access_secret,
    create_policy_provider,
)
from tailrace.errors import BadCredentials, BadSetting, CredentialsMissing, StoreUnavailable
from tailrace.settings import Settings
from tests.integration.aws.test_origin_secret import Now

OLD, NEW = "an-old-secret-of-a-fair-length", "a-new-secret-of-a-fair-length"


class StubProvider(SecretPolicyProvider):
    """A provider with a fixed secret value."""

    def __init__(self, text: str | None, now: Now) -> None:
        super().__init__(Settings(access_secret="arn:any"), now)
        self.text = text
        self.reads = 0

    async def _read_secret(self) -> str:
        self.reads += 1
        if self.text is None:
            raise StoreUnavailable("the secret cannot be read")
        return self.text


@pytest.fixture
def now() -> Now:
    return Now()


def reads(authorizer: Authorizer, secret: str) -> bool:
    try:
        credentials = Credentials(signed=sign("a", secret))
        return authorizer.authorize(Operation.READ, "a", credentials, 0).reason == "signed"
    except BadCredentials:
        return False


async def test_a_removed_key_counts_no_longer_than_five_minutes(now: Now) -> None:
    provider = StubProvider(json.dumps({"secret": f"{OLD} {NEW}"}), now)
    assert reads(await provider.current(), OLD)
    provider.text = json.dumps({"secret": NEW})
    now.time += KEEP_SECONDS - 1
    assert reads(await provider.current(), OLD)
    assert provider.reads == 1
    now.time += 1
    authorizer = await provider.current()
    assert not reads(authorizer, OLD)
    assert reads(authorizer, NEW)


async def test_a_function_refreshes_the_secret_after_a_long_freeze(now: Now) -> None:
    provider = StubProvider(json.dumps({"secret": OLD}), now)
    await provider.current()
    provider.text = json.dumps({"secret": NEW})
    now.time += 100_000
    assert not reads(await provider.current(), OLD)


async def test_an_unchanged_secret_keeps_the_authorizer(now: Now) -> None:
    provider = StubProvider(json.dumps({"secret": OLD}), now)
    authorizer = await provider.current()
    now.time += KEEP_SECONDS
    assert await provider.current() is authorizer
    assert provider.reads == 2


@pytest.mark.parametrize(
    "bad", [None, "", "no JSON", "[]", '{"secrets": "x"}', '{"access": "open"}']
)
async def test_the_authorizer_stays_while_the_secret_is_invalid(now: Now, bad: str | None) -> None:
    provider = StubProvider(json.dumps({"secret": OLD}), now)
    before = await provider.current()
    provider.text = bad
    now.time += KEEP_SECONDS
    assert await provider.current() is before
    assert await provider.current() is before
    assert provider.reads == 2
    provider.text = json.dumps({"secret": NEW})
    now.time += RETRY_SECONDS
    assert reads(await provider.current(), NEW)


async def test_requests_fail_until_the_access_secret_is_valid(now: Now) -> None:
    provider = StubProvider(None, now)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="access secret"):
            await provider.current()
    assert provider.reads == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ({"secrt": "hush-hush"}, "secrt"),
        ({"origin_secret": "hush-hush"}, "origin_secret"),
        ({"jwt_max_age": "hush-hush"}, "jwt_max_age"),
        ({"jwt_param": "hush hush"}, "jwt_param"),
        ({"enforce_jwt": "hush-hush"}, "enforce_jwt"),
        ({"jwks": "ftp://hush-hush"}, "jwks"),
        ({"secret": ["hush-hush"]}, "secret"),
        ({"secret": None}, "secret"),
        ({"secret": {"hush-hush": 1}}, "secret"),
    ],
)
async def test_an_invalid_field_is_named_but_no_value_is_logged(
    now: Now, text: dict[str, Any], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StoreUnavailable) as refused:
        await StubProvider(json.dumps(text), now).current()
    assert named in caplog.text
    assert "hush" not in caplog.text + str(refused.value)


def test_access_is_closed_with_an_access_secret() -> None:
    authorizer = Authorizer(apply_access_secret(Settings(), "{}"))
    with pytest.raises(CredentialsMissing):
        authorizer.authorize(Operation.READ, "a", Credentials(), 0)


def test_a_field_overrides_the_functions_own_setting() -> None:
    own = Settings(public_streams="a/*", jwt_audience="mine", table="mine")
    settings = apply_access_secret(
        own, '{"public_streams": true, "enforce_jwt": "yes", "jwt_max_age": 60}'
    )
    assert settings.public_streams.lower() == "true"
    assert (settings.enforce_jwt, settings.jwt_max_age) == (True, 60)
    assert (settings.jwt_audience, settings.table) == ("mine", "mine")


def test_access_is_open_only_if_configured() -> None:
    assert create_policy_provider(Settings(access="open")) is None
    for settings in (Settings(), Settings(access="closed")):
        with pytest.raises(BadSetting, match="TAILRACE_ACCESS_SECRET"):
            create_policy_provider(settings)


async def test_the_setting_may_be_the_secret_itself() -> None:
    kept = create_policy_provider(Settings(access_secret=json.dumps({"secret": OLD})))
    assert kept is not None
    assert reads(await kept.current(), OLD)


async def test_an_arn_is_looked_up(secrets_manager: Any, secret: str) -> None:
    secrets_manager.put_secret_value(SecretId=secret, SecretString=json.dumps({"secret": NEW}))
    assert reads(await SecretPolicyProvider(Settings(access_secret=secret)).current(), NEW)


def test_every_field_is_a_setting() -> None:
    assert {"secret", "jwks", "skip_auth"} <= policy_provider.FIELDS
    assert not {"access", "origin_secret", "access_secret", "table"} & policy_provider.FIELDS
    assert {setting.name for setting in fields(Settings)} >= policy_provider.FIELDS
