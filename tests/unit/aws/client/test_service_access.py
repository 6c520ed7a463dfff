"""Where endpoint, region, credentials and retries come from."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.credentials import RefreshableCredentials

from tailrace.aws.client import service_access
from tailrace.aws.client.service_access import (
    READ_SECONDS,
    AwsCredentials,
    CredentialsUnavailable,
    boto_client,
    resolve_service_access,
)
from tailrace.errors import BadSetting
from tailrace.limits import AWS_CALL_ATTEMPTS, AWS_CONNECT_SECONDS, AWS_CONNECTIONS
from tailrace.settings import Settings

LOCAL = "http://127.0.0.1:8706"
ELSEWHERE = "http://dynamodb.internal:8000"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "a-secret-key"}
CLOUD = {**KEYS, "AWS_DEFAULT_REGION": "eu-west-1"}

Env = pytest.MonkeyPatch


class Files:
    """The shared configuration and credentials files."""

    def __init__(self, directory: Path) -> None:
        self._config = directory / "config"
        self._credentials = directory / "credentials"
        self.env = {
            "AWS_CONFIG_FILE": str(self._config),
            "AWS_SHARED_CREDENTIALS_FILE": str(self._credentials),
        }

    def config(self, text: str) -> None:
        self._config.write_text(text)

    def credentials(self, text: str) -> None:
        self._credentials.write_text(text)


@pytest.fixture(autouse=True)
def files(monkeypatch: Env, tmp_path: Path) -> Files:
    """Nothing is configured but what a test configures."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    files = Files(tmp_path)
    set_env(monkeypatch, AWS_EC2_METADATA_DISABLED="true", **files.env)
    return files


def set_env(monkeypatch: Env, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def cloud(monkeypatch: Env) -> None:
    set_env(monkeypatch, **CLOUD)


@pytest.fixture
def clients() -> Iterator[list[Any]]:
    created: list[Any] = []
    yield created
    for client in created:
        client.close()


# Endpoint


@pytest.mark.usefixtures("cloud")
def test_the_endpoint_of_the_region_is_the_last_resort() -> None:
    access = resolve_service_access(Settings())
    assert access.endpoint == "https://dynamodb.eu-west-1.amazonaws.com"
    assert access.region == "eu-west-1"
    assert not access.local


@pytest.mark.parametrize(
    ("switch", "region"),
    [
        ("", "us-east-1"),
        ("", "cn-north-1"),
        ("AWS_USE_FIPS_ENDPOINT", "us-gov-west-1"),
        ("AWS_USE_FIPS_ENDPOINT", "ap-southeast-7"),
        ("AWS_USE_DUALSTACK_ENDPOINT", "us-east-1"),
        ("AWS_USE_DUALSTACK_ENDPOINT", "cn-north-1"),
    ],
)
def test_the_endpoint_of_a_region_is_botocores(
    switch: str, region: str, monkeypatch: Env, clients: list[Any]
) -> None:
    set_env(monkeypatch, **{**CLOUD, "AWS_DEFAULT_REGION": region})
    if switch:
        set_env(monkeypatch, **{switch: "true"})
    clients.append(botocore.session.Session().create_client("dynamodb"))
    assert resolve_service_access(Settings()).endpoint == clients[0].meta.endpoint_url


SERVICES = "[default]\nservices = mine\n[services mine]\ndynamodb =\n  endpoint_url = http://a:1\n"
PROFILE = "[default]\nendpoint_url = http://b:2\n"
GLOBAL = {"AWS_ENDPOINT_URL": "http://c:3"}
SPECIFIC = {"AWS_ENDPOINT_URL_DYNAMODB": "http://d:4"}
IGNORED = {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}


@pytest.mark.parametrize(
    ("config", "env", "expected"),
    [
        (PROFILE, {}, "http://b:2"),
        (SERVICES, {}, "http://a:1"),
        (SERVICES.replace("dynamodb", "s3"), {}, "https://dynamodb.eu-west-1.amazonaws.com"),
        (SERVICES + PROFILE.replace("[default]", "[profile other]"), {}, "http://a:1"),
        (SERVICES, GLOBAL, "http://c:3"),
        (SERVICES, {**GLOBAL, **SPECIFIC}, "http://d:4"),
        (SERVICES, {**GLOBAL, **SPECIFIC, **IGNORED}, "https://dynamodb.eu-west-1.amazonaws.com"),
        (PROFILE, {"AWS_ENDPOINT_URL": ""}, "http://b:2"),
    ],
)
@pytest.mark.usefixtures("cloud")
def test_a_configured_endpoint_is_found_as_botocore_finds_it(
    config: str,
    env: dict[str, str],
    expected: str,
    monkeypatch: Env,
    files: Files,
    clients: list[Any],
) -> None:
    files.config(config)
    set_env(monkeypatch, **env)
    clients.append(boto3.Session().client("dynamodb"))
    assert resolve_service_access(Settings()).endpoint == expected == clients[0].meta.endpoint_url


@pytest.mark.usefixtures("cloud")
def test_the_setting_overrides_botocore(monkeypatch: Env, files: Files) -> None:
    files.config(SERVICES)
    set_env(monkeypatch, **GLOBAL)
    assert resolve_service_access(Settings(endpoint_url=ELSEWHERE)).endpoint == ELSEWHERE
    set_env(monkeypatch, **IGNORED)
    assert resolve_service_access(Settings(endpoint_url=ELSEWHERE)).endpoint == ELSEWHERE


@pytest.mark.usefixtures("cloud")
def test_the_variable_of_the_service_wins_over_the_setting(
    monkeypatch: Env, clients: list[Any]
) -> None:
    set_env(monkeypatch, **SPECIFIC, AWS_ENDPOINT_URL_S3="http://127.0.0.1:9000")
    settings = Settings(endpoint_url=ELSEWHERE)
    assert resolve_service_access(settings).endpoint == "http://d:4"
    clients += [boto_client("s3", settings), boto_client("sts", settings)]
    endpoints = [client.meta.endpoint_url for client in clients]
    assert endpoints == ["http://127.0.0.1:9000", ELSEWHERE]


def test_a_slash_at_the_end_of_an_endpoint_means_nothing() -> None:
    assert resolve_service_access(Settings(endpoint_url=f"{LOCAL}/")).endpoint == LOCAL


@pytest.mark.parametrize("endpoint", ["127.0.0.1:8000", "localhost", "ftp://a", "http://"])
def test_an_endpoint_that_is_no_url_is_a_bad_setting(endpoint: str) -> None:
    with pytest.raises(BadSetting, match=re.escape(repr(endpoint))):
        resolve_service_access(Settings(endpoint_url=endpoint))


@pytest.mark.usefixtures("cloud")
def test_a_profile_that_names_missing_services_is_a_bad_setting(files: Files) -> None:
    files.config("[default]\nservices = gone\n")
    with pytest.raises(BadSetting, match="gone"):
        resolve_service_access(Settings())


@pytest.mark.parametrize(
    ("endpoint", "local"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://127.8.8.8:8000", True),
        ("http://[::1]:8000", True),
        ("http://localhost:8000", True),
        ("https://LOCALHOST", True),
        ("http://aws.localhost:4566", True),
        ("http://10.0.0.1:8000", False),
        ("http://localhost.example.org", False),
        ("http://127.0.0.1.example.org", False),
    ],
)
@pytest.mark.usefixtures("cloud")
def test_an_endpoint_is_local_when_its_host_is_loopback(endpoint: str, local: bool) -> None:
    assert resolve_service_access(Settings(endpoint_url=endpoint)).local is local


# Region


def test_a_region_comes_from_the_environment_or_the_profile(monkeypatch: Env, files: Files) -> None:
    set_env(monkeypatch, **KEYS)
    files.config("[default]\nregion = eu-west-3\n[profile other]\nregion = eu-west-2\n")
    assert resolve_service_access(Settings()).region == "eu-west-3"
    set_env(monkeypatch, AWS_PROFILE="other")
    assert resolve_service_access(Settings()).region == "eu-west-2"
    set_env(monkeypatch, AWS_DEFAULT_REGION="eu-west-1")
    assert resolve_service_access(Settings()).region == "eu-west-1"
    assert resolve_service_access(Settings(endpoint_url=LOCAL)).region == "eu-west-1"


def test_a_local_endpoint_needs_no_region() -> None:
    assert resolve_service_access(Settings(endpoint_url=LOCAL)).region == "us-east-1"


@pytest.mark.parametrize(
    ("variables", "region"),
    [
        ({"AWS_REGION": "eu-west-2"}, "eu-west-2"),
        ({"AWS_REGION": "eu-west-2", "AWS_DEFAULT_REGION": "eu-west-1"}, "eu-west-1"),
        ({"AWS_REGION": "", "AWS_DEFAULT_REGION": "eu-west-1"}, "eu-west-1"),
    ],
)
def test_the_region_has_two_variables(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], region: str
) -> None:
    set_env(monkeypatch, **KEYS, **variables)
    assert resolve_service_access(Settings()).region == region
    assert boto_client("s3", Settings()).meta.region_name == region


@pytest.mark.parametrize("endpoint", ["", ELSEWHERE])
def test_a_missing_region_is_named_with_its_remedy(endpoint: str, monkeypatch: Env) -> None:
    set_env(monkeypatch, **KEYS)
    for find in (resolve_service_access, s3):
        with pytest.raises(BadSetting, match=r"region.*AWS_DEFAULT_REGION.*profile"):
            find(Settings(endpoint_url=endpoint))


def s3(settings: Settings) -> Any:
    return boto_client("s3", settings)


# AwsCredentials


async def test_a_local_endpoint_needs_no_credentials() -> None:
    access = resolve_service_access(Settings(endpoint_url=LOCAL))
    assert await access.credentials() == AwsCredentials("local", "local", None)
    access.renew()
    assert await access.credentials() == AwsCredentials("local", "local", None)


async def test_a_local_endpoint_uses_the_credentials_there_are(monkeypatch: Env) -> None:
    set_env(monkeypatch, **KEYS, AWS_SESSION_TOKEN="tok")
    access = resolve_service_access(Settings(endpoint_url=LOCAL))
    assert await access.credentials() == AwsCredentials("AKIDEXAMPLE", "a-secret-key", "tok")


def test_a_local_endpoint_does_not_ask_for_the_role_of_the_machine(monkeypatch: Env) -> None:
    def fetch(*_: Any) -> None:
        raise AssertionError("the metadata service was asked")

    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setattr(
        "botocore.utils.InstanceMetadataFetcher.retrieve_iam_role_credentials", fetch
    )
    resolve_service_access(Settings(endpoint_url=LOCAL))


async def test_credentials_come_from_the_profile(monkeypatch: Env, files: Files) -> None:
    set_env(monkeypatch, AWS_DEFAULT_REGION="eu-west-1", AWS_PROFILE="other")
    files.credentials("[other]\naws_access_key_id = one\naws_secret_access_key = two\n")
    assert await resolve_service_access(Settings()).credentials() == AwsCredentials(
        "one", "two", None
    )


@pytest.mark.parametrize("endpoint", ["", ELSEWHERE])
def test_missing_credentials_are_named_with_their_remedy(endpoint: str, monkeypatch: Env) -> None:
    set_env(monkeypatch, AWS_DEFAULT_REGION="eu-west-1")
    for find in (resolve_service_access, s3):
        with pytest.raises(BadSetting, match=r"credentials.*AWS_ACCESS_KEY_ID.*AWS_PROFILE"):
            find(Settings(endpoint_url=endpoint))


def test_an_unusable_aws_configuration_is_a_bad_setting(monkeypatch: Env) -> None:
    set_env(monkeypatch, **CLOUD, AWS_PROFILE="nobody")
    with pytest.raises(BadSetting, match="nobody"):
        resolve_service_access(Settings())


async def test_refused_credentials_are_looked_for_again(monkeypatch: Env, files: Files) -> None:
    set_env(monkeypatch, AWS_DEFAULT_REGION="eu-west-1")
    text = "[default]\naws_access_key_id = {}\naws_secret_access_key = s\n"
    files.credentials(text.format("old"))
    access = resolve_service_access(Settings())
    files.credentials(text.format("new"))
    assert (await access.credentials()).access_key == "old"
    access.renew()
    assert (await access.credentials()).access_key == "new"
    files.credentials("")
    access.renew()
    assert (await access.credentials()).access_key == "new"


class Role:
    """Temporary credentials, and a service that hands out newer ones."""

    def __init__(self, seconds: float) -> None:
        self.threads: list[threading.Thread] = []
        self.fails = False
        self.held = RefreshableCredentials.create_from_metadata(
            self._made(0, seconds), self._fetch, "test"
        )

    def _fetch(self) -> dict[str, str]:
        self.threads.append(threading.current_thread())
        if self.fails:
            raise OSError("a secret of the metadata service")
        return self._made(len(self.threads), 3600)

    @staticmethod
    def _made(number: int, seconds: float) -> dict[str, str]:
        expiry = datetime.now(UTC) + timedelta(seconds=seconds)
        return {
            "access_key": f"key{number}",
            "secret_key": "s",
            "token": "t",
            "expiry_time": expiry.isoformat(),
        }


async def test_credentials_that_last_are_not_refreshed(monkeypatch: Env) -> None:
    role = Role(3600)
    access = with_role(role, monkeypatch)
    assert await access.credentials() == AwsCredentials("key0", "s", "t")
    assert role.threads == []


async def test_credentials_are_refreshed_in_a_thread(monkeypatch: Env) -> None:
    role = Role(30)
    access = with_role(role, monkeypatch)
    assert await access.credentials() == AwsCredentials("key1", "s", "t")
    assert await access.credentials() == AwsCredentials("key1", "s", "t")
    (thread,) = role.threads
    assert thread is not threading.main_thread()


async def test_a_failed_refresh_is_reported_without_details(
    monkeypatch: Env, caplog: pytest.LogCaptureFixture
) -> None:
    role = Role(30)
    access = with_role(role, monkeypatch)
    role.fails = True
    with pytest.raises(CredentialsUnavailable) as caught:
        await access.credentials()
    assert str(caught.value) == "no credentials: OSError"
    role.fails = False
    caplog.clear()
    assert (await access.credentials()).access_key == "key2"


def with_role(role: Role, monkeypatch: Env) -> service_access.ServiceAccess:
    set_env(monkeypatch, AWS_DEFAULT_REGION="eu-west-1")
    monkeypatch.setattr(
        "botocore.credentials.CredentialResolver.load_credentials", lambda _: role.held
    )
    return resolve_service_access(Settings())


# Retries and certificates


def test_attempts_come_from_the_environment_or_the_profile(
    monkeypatch: Env, files: Files, clients: list[Any]
) -> None:
    set_env(monkeypatch, **CLOUD)
    assert resolve_service_access(Settings()).attempts == AWS_CALL_ATTEMPTS == 4
    files.config("[default]\nmax_attempts = 7\n")
    assert resolve_service_access(Settings()).attempts == 7
    set_env(monkeypatch, AWS_MAX_ATTEMPTS="2")
    assert resolve_service_access(Settings()).attempts == 2
    clients.append(boto_client("s3", Settings()))
    assert clients[0].meta.config.retries == {"mode": "standard", "total_max_attempts": 2}
    set_env(monkeypatch, AWS_MAX_ATTEMPTS="0")
    assert resolve_service_access(Settings()).attempts == 1
    set_env(monkeypatch, AWS_MAX_ATTEMPTS="some")
    with pytest.raises(BadSetting, match="AWS_MAX_ATTEMPTS"):
        resolve_service_access(Settings())


def test_a_ca_bundle_comes_from_the_environment_or_the_profile(
    monkeypatch: Env, files: Files
) -> None:
    set_env(monkeypatch, **CLOUD)
    assert resolve_service_access(Settings()).ca_bundle is None
    files.config("[default]\nca_bundle = /etc/profile.pem\n")
    assert resolve_service_access(Settings()).ca_bundle == "/etc/profile.pem"
    set_env(monkeypatch, AWS_CA_BUNDLE="/etc/env.pem")
    assert resolve_service_access(Settings()).ca_bundle == "/etc/env.pem"


# boto3


def test_a_local_boto3_client_needs_nothing_and_names_buckets_in_the_path(
    clients: list[Any],
) -> None:
    settings = Settings(endpoint_url=LOCAL)
    clients += [boto_client("s3", settings), boto_client("dynamodb", settings)]
    for client in clients:
        assert client.meta.endpoint_url == LOCAL
        assert client.meta.region_name == "us-east-1"
    url = clients[0].generate_presigned_url("get_object", {"Bucket": "bucket", "Key": "k"})
    assert url.startswith(f"{LOCAL}/bucket/k?")
    assert "=local&" in url


def test_a_boto3_client_is_bounded_and_signs_as_the_chain_says(
    monkeypatch: Env, clients: list[Any]
) -> None:
    set_env(monkeypatch, **CLOUD)
    clients.append(boto_client("s3", Settings()))
    config = clients[0].meta.config
    assert (config.connect_timeout, config.read_timeout) == (AWS_CONNECT_SECONDS, READ_SECONDS)
    assert config.max_pool_connections == AWS_CONNECTIONS
    assert config.retries == {"mode": "standard", "total_max_attempts": 4}
    url = clients[0].generate_presigned_url("get_object", {"Bucket": "bucket", "Key": "k"})
    assert url.startswith("https://bucket.s3.")
    assert "AKIDEXAMPLE" in url


def test_botocore_is_not_imported_before_it_is_needed() -> None:
    program = (
        "import sys, tailrace.aws.client.json_client, tailrace.aws.client.service_access\n"
        "sys.exit('botocore' in sys.modules or 'boto3' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
