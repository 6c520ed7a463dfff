"""A rotation of the origin secret, step by step, on ministack's Secrets Manager and CloudFront."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tailrace.aws.edge.origin_secret import REFRESH_SECONDS
from tailrace.aws.handlers.rotate_secret import RotateSecretHandler
from tailrace.errors import BadSetting
from tests.support.sleeps import replace_sleep

STEPS = ("createSecret", "setSecret", "testSecret", "finishSecret")


@pytest.fixture
def rotation(
    secret: str, distribution: str, monkeypatch: pytest.MonkeyPatch
) -> RotateSecretHandler:
    monkeypatch.setenv("TAILRACE_ORIGIN_SECRET", secret)
    monkeypatch.setenv("TAILRACE_DISTRIBUTION", distribution)
    return RotateSecretHandler()


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, in no time."""
    pauses: list[float] = []
    replace_sleep(monkeypatch, pauses.append)
    return pauses


@pytest.fixture
def version() -> str:
    return str(uuid.uuid4())


def step(name: str, secret: str, version: str) -> dict[str, str]:
    return {"Step": name, "SecretId": secret, "ClientRequestToken": version}


def value(secrets_manager: Any, secret: str, stage: str) -> str:
    found: str = secrets_manager.get_secret_value(SecretId=secret, VersionStage=stage)[
        "SecretString"
    ]
    return found


def sent(cloudfront: Any, distribution: str) -> list[dict[str, str]]:
    config = cloudfront.get_distribution_config(Id=distribution)["DistributionConfig"]
    return [
        {header["HeaderName"]: header["HeaderValue"] for header in origin["CustomHeaders"]["Items"]}
        for origin in config["Origins"]["Items"]
    ]


def test_the_four_steps_set_a_new_secret_and_keep_the_previous_one(
    rotation: RotateSecretHandler,
    secret: str,
    distribution: str,
    version: str,
    secrets_manager: Any,
    cloudfront: Any,
) -> None:
    for name in STEPS:
        rotation(step(name, secret, version))
    new = value(secrets_manager, secret, "AWSCURRENT")
    assert len(new) == 48
    assert value(secrets_manager, secret, "AWSPREVIOUS") == "first"
    assert sent(cloudfront, distribution) == [{"x-other": "kept", "x-tailrace-origin": new}] * 2


def test_cloudfront_is_updated_after_functions_can_refresh_again(
    rotation: RotateSecretHandler, secret: str, version: str, slept: list[float]
) -> None:
    rotation(step("createSecret", secret, version))
    assert slept == []
    rotation(step("setSecret", secret, version))
    assert slept == [REFRESH_SECONDS]


def test_every_step_may_come_twice(
    rotation: RotateSecretHandler, secret: str, version: str, secrets_manager: Any
) -> None:
    rotation(step("createSecret", secret, version))
    announced = value(secrets_manager, secret, "AWSPENDING")
    for name in STEPS[:3]:
        rotation(step(name, secret, version))
        rotation(step(name, secret, version))
    assert value(secrets_manager, secret, "AWSPENDING") == announced
    rotation(step("finishSecret", secret, version))
    rotation(step("finishSecret", secret, version))
    assert value(secrets_manager, secret, "AWSCURRENT") == announced


def test_the_value_stays_current_until_cloudfront_sends_the_new_one(
    rotation: RotateSecretHandler, secret: str, version: str, secrets_manager: Any
) -> None:
    rotation(step("createSecret", secret, version))
    with pytest.raises(RuntimeError, match="does not send the new secret"):
        rotation(step("testSecret", secret, version))
    assert value(secrets_manager, secret, "AWSCURRENT") == "first"


def test_only_its_own_secret_is_rotated(rotation: RotateSecretHandler, version: str) -> None:
    with pytest.raises(BadSetting, match="not arn:other"):
        rotation(step("createSecret", "arn:other", version))
