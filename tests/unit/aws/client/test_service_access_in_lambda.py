"""Inside a function, access to AWS is resolved without botocore, with the same outcome."""

from __future__ import annotations

import boto3
import pytest

from tailrace.aws.client.service_access import lambda_service_access, resolve_service_access
from tailrace.settings import Settings

FUNCTION = {
    "AWS_LAMBDA_RUNTIME_API": "127.0.0.1:9001",
    "AWS_REGION": "eu-central-1",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_ACCESS_KEY_ID": "AKIA",
    "AWS_SECRET_ACCESS_KEY": "hidden",
    "AWS_SESSION_TOKEN": "token",
}


@pytest.fixture(autouse=True)
def function(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FUNCTION.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("service", ["dynamodb", "secretsmanager"])
async def test_access_is_the_same_as_with_botocore(service: str) -> None:
    access, reference = (
        lambda_service_access(Settings(), service),
        resolve_service_access(Settings(), service),
    )
    assert access is not None
    assert access[:4] == reference[:4]
    assert access.region == FUNCTION["AWS_REGION"]
    assert access.local is reference.local is False
    assert await access.credentials() == await reference.credentials()


@pytest.mark.parametrize("service", ["dynamodb", "secretsmanager"])
def test_the_endpoint_of_every_region_is_botocores(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = boto3.Session()
    for region in session.get_available_regions("dynamodb"):
        monkeypatch.setenv("AWS_REGION", region)
        access = lambda_service_access(Settings(), service)
        assert access is not None, region
        reference = session.client(service, region_name=region)
        try:
            assert access.endpoint == reference.meta.endpoint_url
        finally:
            reference.close()


@pytest.mark.parametrize(
    "env",
    [
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:8000/"},
        {"AWS_ENDPOINT_URL_DYNAMODB": "https://vpce.example.com"},
        {"AWS_ENDPOINT_URL": "http://1", "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:2"},
        {"AWS_MAX_ATTEMPTS": "7"},
        {"AWS_MAX_ATTEMPTS": "0"},
        {"AWS_CA_BUNDLE": "/opt/ca.pem"},
        {"AWS_SESSION_TOKEN": ""},
    ],
)
async def test_it_heeds_the_variables_that_botocore_heeds(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    access, reference = lambda_service_access(Settings()), resolve_service_access(Settings())
    assert access is not None
    assert access[:4] == reference[:4]
    assert access.local is reference.local
    keys, expected = await access.credentials(), await reference.credentials()
    assert (keys[:2], keys.token or None) == (expected[:2], expected.token or None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_LAMBDA_RUNTIME_API", None),
        ("AWS_ACCESS_KEY_ID", None),
        ("AWS_REGION", None),
        ("AWS_REGION", "cn-north-1"),
        ("AWS_REGION", "us-iso-east-1"),
        ("AWS_REGION", "eusc-de-east-1"),
        ("AWS_PROFILE", "work"),
        ("AWS_USE_FIPS_ENDPOINT", "true"),
        ("AWS_USE_DUALSTACK_ENDPOINT", "true"),
        ("AWS_MAX_ATTEMPTS", "many"),
    ],
)
def test_unusual_configurations_are_left_to_botocore(
    name: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, value)
    assert lambda_service_access(Settings()) is None
