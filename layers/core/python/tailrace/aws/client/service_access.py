"""Endpoint, region, credentials and retries of AWS services.

A Lambda function has them all in its environment; everywhere else botocore resolves them. boto3 and
botocore are imported only when they are needed: in a cold start the import takes longer than
everything else before the first call.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from tailrace.errors import BadSetting
from tailrace.limits import AWS_CALL_ATTEMPTS, AWS_CONNECT_SECONDS, AWS_CONNECTIONS
from tailrace.settings import Settings

LOCAL_REGION: Final = "us-east-1"
LOCAL_KEY: Final = "local"
"""Both keys for emulators: they accept any, and some have separate tables per access key."""

READ_SECONDS: Final = 20
"""Read timeout of boto3: enough for slow responses of S3 or of a control plane."""

_NO_REGION: Final = (
    "no AWS region was found: set AWS_DEFAULT_REGION or AWS_REGION, or `region` in the profile that"
    " AWS_PROFILE names"
)
_NO_CREDENTIALS: Final = (
    "no AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, set"
    " AWS_PROFILE to a profile that has them, or run with a role"
)


_ORDINARY_REGION: Final = re.compile(r"(?:af|ap|ca|eu|il|me|mx|sa|us)-[a-z]+-[0-9]+")
"""The regions whose endpoints end in amazonaws.com."""

_UNUSUAL: Final = (
    "AWS_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_USE_FIPS_ENDPOINT",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
)


class CredentialsUnavailable(Exception):
    """Temporary credentials expired and could not be refreshed."""


class AwsCredentials(NamedTuple):
    access_key: str
    secret_key: str
    token: str | None


def _nothing() -> None:
    pass


class ServiceAccess(NamedTuple):
    endpoint: str
    region: str
    attempts: int
    """Maximum attempts per call, including the first."""
    ca_bundle: str | None
    credentials: Callable[[], Awaitable[AwsCredentials]]
    """Returns cached credentials, or refreshes them in a thread."""
    local: bool
    """Whether the endpoint is on this machine."""
    renew: Callable[[], None] = _nothing
    """Call it after credentials were refused as expired: `credentials` then refreshes them."""


async def find_service_access(settings: Settings, service: str = "dynamodb") -> ServiceAccess:
    """Find a service's endpoint and credentials, inside a function or elsewhere."""
    access = lambda_service_access(settings, service)
    if access is not None:
        return access
    # Importing botocore, and finding credentials, would block the event loop.
    return await asyncio.to_thread(resolve_service_access, settings, service)


def lambda_service_access(settings: Settings, service: str = "dynamodb") -> ServiceAccess | None:
    """None outside of Lambda, or if the configuration is unusual."""
    env = os.environ
    region = env.get("AWS_REGION", "")
    keys = env.get("AWS_ACCESS_KEY_ID"), env.get("AWS_SECRET_ACCESS_KEY")
    attempts = env.get("AWS_MAX_ATTEMPTS") or str(AWS_CALL_ATTEMPTS)
    if (
        "AWS_LAMBDA_RUNTIME_API" not in env
        # A function restored from a snapshot has to fetch its keys.
        or not all(keys)
        or any(env.get(variable) for variable in _UNUSUAL)
        or not _ORDINARY_REGION.fullmatch(region)
        or not attempts.isdecimal()
    ):
        return None
    endpoint = (
        env.get(f"AWS_ENDPOINT_URL_{service.upper()}")
        or settings.endpoint_url
        or env.get("AWS_ENDPOINT_URL")
        or f"https://{service}.{region}.amazonaws.com"
    )
    access_key, secret_key = keys
    assert access_key is not None
    assert secret_key is not None
    credentials = AwsCredentials(access_key, secret_key, env.get("AWS_SESSION_TOKEN"))

    async def current() -> AwsCredentials:
        return credentials

    return ServiceAccess(
        endpoint=endpoint.rstrip("/"),
        region=region,
        attempts=max(1, int(attempts)),
        ca_bundle=env.get("AWS_CA_BUNDLE"),
        credentials=current,
        local=is_loopback(endpoint),
    )


def resolve_service_access(settings: Settings, service: str = "dynamodb") -> ServiceAccess:
    """Resolve a service's endpoint and credentials; raise BadSetting if one is missing."""
    config = _resolve(service, settings)
    source = _CredentialsSource(config.credentials, lambda: _credentials(_session(), config.local))
    return ServiceAccess(
        endpoint=config.endpoint or _default_endpoint(config.session, service, config.region),
        region=config.region,
        attempts=config.attempts,
        ca_bundle=config.session.get_config_variable("ca_bundle"),
        credentials=source.current,
        local=config.local,
        renew=source.renew,
    )


def boto_client(service: str, settings: Settings) -> Any:
    """A boto3 client with the same configuration, for calls that are not on a request's path."""
    import boto3
    from botocore.config import Config

    config = _resolve(service, settings)
    keys = {}
    if config.credentials is None:
        keys = {"aws_access_key_id": LOCAL_KEY, "aws_secret_access_key": LOCAL_KEY}
    boto_config = Config(
        connect_timeout=AWS_CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": config.attempts},
        max_pool_connections=AWS_CONNECTIONS,
        s3={"addressing_style": "path"} if config.local else None,
    )
    return boto3.Session(botocore_session=config.session).client(
        service, region_name=config.region, endpoint_url=config.endpoint, config=boto_config, **keys
    )


class _ServiceConfig(NamedTuple):
    session: Any
    endpoint: str | None
    """None: the service's own endpoint in the region."""
    region: str
    credentials: Any
    """Of botocore; None: there are none, and a local endpoint needs none."""
    attempts: int
    local: bool


def _resolve(service: str, settings: Settings) -> _ServiceConfig:
    session = _session()
    from botocore.exceptions import BotoCoreError

    try:
        endpoint = _endpoint(session, service, settings)
        local = endpoint is not None and is_loopback(endpoint)
        region = _region(session) or (LOCAL_REGION if local else None)
        if region is None:
            raise BadSetting(_NO_REGION)
        credentials = _credentials(session, local)
        if credentials is None and not local:
            raise BadSetting(_NO_CREDENTIALS)
        return _ServiceConfig(session, endpoint, region, credentials, _attempts(session), local)
    except BotoCoreError as error:
        raise BadSetting(f"the AWS configuration cannot be used: {error}") from error


def _session() -> Any:
    return import_boto("botocore.session").Session()


def import_boto(module: str) -> Any:
    """Import a module of boto3, or raise BadSetting where it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise BadSetting("AWS needs boto3: pip install 'tailrace[aws]'") from None


def _region(session: Any) -> str | None:
    # botocore reads only the first variable, most other SDKs only the second; Lambda sets both.
    for variable in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        if os.environ.get(variable):
            return os.environ[variable]
    region: str | None = session.get_config_variable("region")
    return region


def _endpoint(session: Any, service: str, settings: Settings) -> str | None:
    if session.get_config_variable("ignore_configured_endpoint_urls"):
        endpoint = settings.endpoint_url
    else:
        endpoint = (
            os.environ.get(f"AWS_ENDPOINT_URL_{service.upper()}")
            or settings.endpoint_url
            or os.environ.get("AWS_ENDPOINT_URL")
            or _endpoint_in_profile(session, service)
        )
    if not endpoint:
        return None
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadSetting(f"an endpoint must be like http://127.0.0.1:8000, not {endpoint!r}")
    return endpoint.rstrip("/")


def _endpoint_in_profile(session: Any, service: str) -> str:
    profile = session.get_scoped_config()
    name = profile.get("services")
    if name is None:
        services = {}
    elif (services := session.full_config.get("services", {}).get(name)) is None:
        raise BadSetting(f"the AWS profile names services {name!r}, but that section is missing")
    endpoint: str = services.get(service, {}).get("endpoint_url") or profile.get("endpoint_url", "")
    return endpoint


def _default_endpoint(session: Any, service: str, region: str) -> str:
    from botocore.loaders import create_loader
    from botocore.regions import EndpointResolver

    endpoint = EndpointResolver(create_loader().load_data("endpoints")).construct_endpoint(
        service,
        region,
        use_dualstack_endpoint=session.get_config_variable("use_dualstack_endpoint") or False,
        use_fips_endpoint=session.get_config_variable("use_fips_endpoint") or False,
    )
    if endpoint is None:
        raise BadSetting(f"no endpoint of {service} is known in the region {region!r}")
    return f"https://{endpoint['hostname']}"


def is_loopback(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _attempts(session: Any) -> int:
    try:
        attempts = session.get_config_variable("max_attempts")
    except ValueError:
        raise BadSetting("AWS_MAX_ATTEMPTS must be a whole number") from None
    return AWS_CALL_ATTEMPTS if attempts is None else max(1, attempts)


def _credentials(session: Any, local: bool) -> Any:
    if local:
        # A local endpoint does not need this machine's role, and looking for one takes seconds.
        session.get_component("credential_provider").remove("iam-role")
    return session.get_credentials()


class _CredentialsSource:
    """Current credentials, refreshed when they expire or were refused."""

    def __init__(self, credentials: Any, load: Callable[[], Any]) -> None:
        self._credentials = credentials
        self._load = load
        self._expired = False

    def renew(self) -> None:
        self._expired = True

    async def current(self) -> AwsCredentials:
        try:
            if self._expired:
                self._expired = False
                self._credentials = await asyncio.to_thread(self._load) or self._credentials
            credentials = self._credentials
            if credentials is None:
                return AwsCredentials(LOCAL_KEY, LOCAL_KEY, None)
            refresh_needed = getattr(credentials, "refresh_needed", None)
            if refresh_needed is not None and refresh_needed():
                frozen = await asyncio.to_thread(credentials.get_frozen_credentials)
            else:
                frozen = credentials.get_frozen_credentials()
        except Exception as error:
            raise CredentialsUnavailable(f"no credentials: {type(error).__name__}") from error
        return AwsCredentials(frozen.access_key, frozen.secret_key, frozen.token)
