"""The keys of subscriptions in Secrets Manager, and their rotation, on ministack."""

from __future__ import annotations

import json
import logging
import uuid
from typing import Any

import pytest
from click.testing import CliRunner, Result

from devtools.processes import fresh_name
from tailrace.aws.handlers.rotate_signing_keys import (
    JWKS_CACHE_SECONDS,
    RotateSigningKeysHandler,
)
from tailrace.cli import main
from tailrace.errors import BadSetting, KeysUnavailable
from tailrace.protocols.subscriptions.key_secret import KEEP_SECONDS, RETRY_SECONDS, KeySecret
from tailrace.protocols.subscriptions.signing import SigningKeys
from tailrace.settings import Settings

STEPS = ("createSecret", "setSecret", "testSecret", "finishSecret")


class Clock:
    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def keys_secret(secrets_manager: Any) -> str:
    """The ARN of a secret as CloudFormation generates it."""
    arn: str = secrets_manager.create_secret(
        Name=fresh_name("subscription-keys"), SecretString="generated" * 6
    )["ARN"]
    return arn


@pytest.fixture
def rotation(keys_secret: str, monkeypatch: pytest.MonkeyPatch) -> RotateSigningKeysHandler:
    monkeypatch.setenv("TAILRACE_SUBSCRIPTION_KEYS", keys_secret)
    return RotateSigningKeysHandler()


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, in no time."""
    pauses: list[float] = []
    monkeypatch.setattr("tailrace.aws.handlers.rotate_signing_keys.time.sleep", pauses.append)
    return pauses


def step(name: str, secret: str, version: str) -> dict[str, str]:
    return {"Step": name, "SecretId": secret, "ClientRequestToken": version}


def published(keys: SigningKeys) -> list[str]:
    return [key["kid"] for key in keys.jwks()["keys"]]


async def test_a_rotation_publishes_before_it_signs_and_keeps_the_previous_key(
    rotation: RotateSigningKeysHandler, keys_secret: str, slept: list[float]
) -> None:
    clock = Clock()
    function = KeySecret(Settings(subscription_keys=keys_secret), clock)
    first = await function.get(0)
    assert published(first) == [first.kid]
    seen = [first]
    version = str(uuid.uuid4())
    for name in STEPS:
        for _ in range(2):  # every step may come twice
            rotation(step(name, keys_secret, version))
        clock.time += KEEP_SECONDS
        seen.append(await function.get(0))
    (new,) = set(published(seen[1])) - {first.kid}
    assert [keys.kid for keys in seen] == [first.kid] * 4 + [new]
    assert [set(published(keys)) for keys in seen[1:]] == [{first.kid, new}] * 4
    assert slept == [KEEP_SECONDS + JWKS_CACHE_SECONDS] * 2
    token = first.issue_token("jobs", 1, 2_000_000_000)
    assert seen[-1].verify_token(token, "jobs", 1_900_000_000) == 1


async def test_two_rotations_revoke_a_key(
    rotation: RotateSigningKeysHandler, keys_secret: str
) -> None:
    first = await KeySecret(Settings(subscription_keys=keys_secret)).get(0)
    for _ in range(2):
        version = str(uuid.uuid4())
        for name in STEPS:
            rotation(step(name, keys_secret, version))
    now = await KeySecret(Settings(subscription_keys=keys_secret)).get(0)
    assert first.kid not in published(now)


async def test_the_command_rotates_and_revokes(keys_secret: str, slept: list[float]) -> None:
    def rotate(*more: str) -> Result:
        return CliRunner().invoke(
            main, ["keys", "rotate", "--secret", keys_secret, *more], catch_exceptions=False
        )

    async def keys() -> SigningKeys:
        return await KeySecret(Settings(subscription_keys=keys_secret)).get(0)

    first = await keys()
    assert "stays published" in rotate().stdout
    assert slept == [KEEP_SECONDS + JWKS_CACHE_SECONDS]
    second = await keys()
    assert second.kid != first.kid
    assert published(second) == [second.kid, first.kid]
    assert json.loads(rotate("--revoke", "--json").stdout) == {
        "secret": keys_secret, "rotated": True, "revoked": True,
    }  # fmt: skip
    assert len(slept) == 1
    assert not {first.kid, second.kid} & set(published(await keys()))


def test_the_command_names_a_secret_that_does_not_exist(aws_env: str) -> None:
    missing = "arn:aws:secretsmanager:us-east-1:000000000000:secret:none-AbCdEf"
    result = CliRunner().invoke(main, ["keys", "rotate", "--secret", missing])
    assert (result.exit_code, result.stdout) == (3, "")
    assert f"cannot rotate {missing}" in result.stderr
    assert aws_env


def test_another_secret_is_not_rotated(rotation: RotateSigningKeysHandler, secret: str) -> None:
    with pytest.raises(BadSetting, match="this function rotates"):
        rotation(step("createSecret", secret, str(uuid.uuid4())))


async def test_the_keys_stay_while_the_secret_cannot_be_read(
    keys_secret: str, secrets_manager: Any, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    function = KeySecret(Settings(subscription_keys=keys_secret), clock)
    keys = await function.get(0)
    secrets_manager.delete_secret(SecretId=keys_secret, ForceDeleteWithoutRecovery=True)
    clock.time += KEEP_SECONDS
    assert await function.get(0) is keys
    assert "keeping the others" in caplog.text
    with pytest.raises(KeysUnavailable):
        await KeySecret(Settings(subscription_keys=keys_secret), clock).get(0)


async def test_a_failed_read_is_not_repeated_at_once(
    aws_env: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    missing = "arn:aws:secretsmanager:us-east-1:000000000000:secret:none-AbCdEf"
    function = KeySecret(Settings(subscription_keys=missing), clock)
    caplog.set_level(logging.ERROR)
    for wait, logged in ((0, 1), (RETRY_SECONDS - 1, 1), (1, 2)):
        clock.time += wait
        with pytest.raises(KeysUnavailable):
            await function.get(0)
        assert caplog.text.count("cannot update") == logged
    assert aws_env


async def test_a_value_may_be_given_itself() -> None:
    one = await KeySecret(Settings(subscription_keys="a value of some length")).get(0)
    other = await KeySecret(Settings(subscription_keys="another value")).get(0)
    assert one.kid != other.kid
