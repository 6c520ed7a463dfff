"""The origin secret in Secrets Manager, read by the lean client."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.aws.client import secrets as secret_module
from tailrace.aws.client.json_client import JsonClient
from tailrace.aws.edge.origin_secret import (
    KEEP_SECONDS,
    REFRESH_SECONDS,
    ManagedOriginSecret,
    derive_key,
    sign_edge_token,
)
from tailrace.errors import StoreUnavailable
from tailrace.settings import Settings


class Now:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
async def stored(secret: str, now: Now) -> Any:
    return ManagedOriginSecret(Settings(origin_secret=secret), now)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stages that were asked for."""
    stages: list[str] = []
    _get_value = secret_module._get_value

    async def counted(client: JsonClient, name: str, stage: str) -> str | None:
        stages.append(stage)
        return await _get_value(client, name, stage)

    monkeypatch.setattr(secret_module, "_get_value", counted)
    return stages


async def test_the_current_value_is_read_once(
    stored: ManagedOriginSecret, asked: list[str]
) -> None:
    for _ in range(5):
        assert await stored.matches("first")
    assert asked == ["AWSCURRENT"]


async def test_another_value_is_refused_without_asking_each_time(
    stored: ManagedOriginSecret, asked: list[str]
) -> None:
    for _ in range(5):
        assert not await stored.matches("wrong")
    assert asked == ["AWSCURRENT", "AWSCURRENT", "AWSPENDING", "AWSPREVIOUS"]


async def test_the_pending_value_is_accepted_as_soon_as_it_exists(
    stored: ManagedOriginSecret, secret: str, secrets_manager: Any
) -> None:
    assert await stored.matches("first")
    secrets_manager.put_secret_value(
        SecretId=secret, SecretString="second", VersionStages=["AWSPENDING"]
    )
    assert await stored.matches("second")
    assert await stored.matches("first")


async def test_the__get_value_before_counts_after_a_rotation(
    stored: ManagedOriginSecret, secret: str, secrets_manager: Any
) -> None:
    secrets_manager.put_secret_value(SecretId=secret, SecretString="second")
    assert await stored.matches("second")
    assert await stored.matches("first")


async def test_a_retired_value_is_refused_within_the_hour(
    stored: ManagedOriginSecret, secret: str, secrets_manager: Any, now: Now
) -> None:
    assert await stored.matches("first")
    for value in ("second", "third"):
        secrets_manager.put_secret_value(SecretId=secret, SecretString=value)
    now.time += KEEP_SECONDS
    assert not await stored.matches("first")
    assert await stored.matches("third")


async def test_a_new_value_is_looked_for_again_after_a_while(
    stored: ManagedOriginSecret, secret: str, secrets_manager: Any, now: Now
) -> None:
    assert not await stored.matches("second")
    secrets_manager.put_secret_value(SecretId=secret, SecretString="second")
    assert not await stored.matches("second")
    now.time += REFRESH_SECONDS
    assert await stored.matches("second")


async def test_an_edge_token_of_the_previous_secret_is_valid_as_long_as_that_secret(
    stored: ManagedOriginSecret, secret: str, secrets_manager: Any, now: Now
) -> None:
    old, new = (
        sign_edge_token(derive_key(value), b"/v1/stream/a") for value in (b"first", b"second")
    )
    assert await stored.verify_edge_token(old, b"/v1/stream/a")
    assert not await stored.verify_edge_token(old, b"/v1/stream/b")
    now.time += REFRESH_SECONDS
    secrets_manager.put_secret_value(SecretId=secret, SecretString="second")
    assert await stored.verify_edge_token(new, b"/v1/stream/a")
    assert await stored.verify_edge_token(old, b"/v1/stream/a")


@pytest.mark.usefixtures("aws_env")
async def test_a_secret_that_is_not_there_is_named_in_the_log_alone(
    now: Now, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "arn:aws:secretsmanager:us-east-1:1:secret:no"
    stored = ManagedOriginSecret(Settings(origin_secret=secret), now)
    with pytest.raises(StoreUnavailable) as raised:
        await stored.matches("first")
    assert str(raised.value) == "a secret of the server cannot be read; the log says why"
    assert secret in caplog.text
    assert "ResourceNotFoundException" in caplog.text
