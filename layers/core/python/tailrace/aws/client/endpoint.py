"""How AWS is reached: endpoint, region, credentials and retries, as botocore's chain finds them.

boto3 and botocore are imported only when they are used: the import alone costs a cold start more
than everything else that is done before the first call.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from tailrace.errors import BadSetting
from tailrace.limits import CALL_ATTEMPTS, CONNECT_SECONDS
from tailrace.settings import Settings

LOCAL_REGION: Final = "us-east-1"
LOCAL_KEY: Final = "local"
"""Stands for both keys: emulators take any, and some keep one table set per access key."""

READ_SECONDS: Final = 20
"""Silence after which boto3 gives up a request: enough for a slow S3, or the control plane."""

_NO_REGION: Final = (
    "no AWS region was found: set AWS_DEFAULT_REGION or AWS_REGION, or `region` in the profile that"
    " AWS_PROFILE names"
)
_NO_CREDENTIALS: Final = (
    "no AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, set"
    " AWS_PROFILE to a profile that has them, or run with a role"
)


class CredentialsUnavailable(Exception):
    """Temporary credentials ran out and newer ones could not be had."""


class Credentials(NamedTuple):
    access_key: str
    secret_key: str
    token: str | None


def _nothing() -> None:
    pass


class Access(NamedTuple):
    endpoint: str
    region: str
    attempts: int
    """Tries per call, the first included."""
    ca_bundle: str | None
    credentials: Callable[[], Awaitable[Credentials]]
    """Cheap unless they have to be refreshed; that is done in a thread."""
    local: bool
    """The endpoint is on this machine."""
    renew: Callable[[], None] = _nothing
    """The credentials were refused as expired: look for newer ones when next asked for any."""


def resolve(settings: Settings, service: str = "dynamodb") -> Access:
    """How a service is reached; `BadSetting` says what is missing."""
    found = _find(service, settings)
    keys = _Keys(found.credentials, lambda: _credentials(_session(), found.local))
    return Access(
        endpoint=found.endpoint or _default_endpoint(found.session, service, found.region),
        region=found.region,
        attempts=found.attempts,
        ca_bundle=found.session.get_config_variable("ca_bundle"),
        credentials=keys.current,
        local=found.local,
        renew=keys.renew,
    )


def boto_client(service: str, settings: Settings) -> Any:
    """boto3's client, for all that is not a call per request; found as `resolve` finds it."""
    import boto3
    from botocore.config import Config

    found = _find(service, settings)
    keys = {}
    if found.credentials is None:
        keys = {"aws_access_key_id": LOCAL_KEY, "aws_secret_access_key": LOCAL_KEY}
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": found.attempts},
        max_pool_connections=settings.connections,
        s3={"addressing_style": "path"} if found.local else None,
    )
    return boto3.Session(botocore_session=found.session).client(
        service, region_name=found.region, endpoint_url=found.endpoint, config=config, **keys
    )


class _Found(NamedTuple):
    session: Any
    endpoint: str | None
    """None: the one that AWS has in the region."""
    region: str
    credentials: Any
    """botocore's; None: there are none, and none are needed."""
    attempts: int
    local: bool


def _find(service: str, settings: Settings) -> _Found:
    from botocore.exceptions import BotoCoreError

    session = _session()
    try:
        endpoint = _endpoint(session, service, settings)
        local = endpoint is not None and is_loopback(endpoint)
        region = _region(session) or (LOCAL_REGION if local else None)
        if region is None:
            raise BadSetting(_NO_REGION)
        credentials = _credentials(session, local)
        if credentials is None and not local:
            raise BadSetting(_NO_CREDENTIALS)
        return _Found(session, endpoint, region, credentials, _attempts(session), local)
    except BotoCoreError as error:
        raise BadSetting(f"the AWS configuration cannot be used: {error}") from error


def _session() -> Any:
    from botocore.session import Session

    return Session()


def _region(session: Any) -> str | None:
    # botocore reads only the first, most other SDKs only the second; Lambda sets both.
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
        raise BadSetting(f"the AWS profile names services {name!r}, but there is no such section")
    endpoint: str = services.get(service, {}).get("endpoint_url") or profile.get("endpoint_url", "")
    return endpoint


def _default_endpoint(session: Any, service: str, region: str) -> str:
    from botocore.loaders import create_loader
    from botocore.regions import EndpointResolver

    found = EndpointResolver(create_loader().load_data("endpoints")).construct_endpoint(
        service,
        region,
        use_dualstack_endpoint=session.get_config_variable("use_dualstack_endpoint") or False,
        use_fips_endpoint=session.get_config_variable("use_fips_endpoint") or False,
    )
    if found is None:
        raise BadSetting(f"no endpoint of {service} is known in the region {region!r}")
    return f"https://{found['hostname']}"


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
    return CALL_ATTEMPTS if attempts is None else max(1, attempts)


def _credentials(session: Any, local: bool) -> Any:
    if local:
        # The role of this machine is no use there, and to find that there is none takes seconds.
        session.get_component("credential_provider").remove("iam-role")
    return session.get_credentials()


class _Keys:
    """The credentials as of now."""

    def __init__(self, found: Any, find: Callable[[], Any]) -> None:
        self._found = found
        self._find = find
        self._refused = False

    def renew(self) -> None:
        self._refused = True

    async def current(self) -> Credentials:
        try:
            if self._refused:
                self._refused = False
                self._found = await asyncio.to_thread(self._find) or self._found
            found = self._found
            if found is None:
                return Credentials(LOCAL_KEY, LOCAL_KEY, None)
            refresh_needed = getattr(found, "refresh_needed", None)
            if refresh_needed is not None and refresh_needed():
                frozen = await asyncio.to_thread(found.get_frozen_credentials)
            else:
                frozen = found.get_frozen_credentials()
        except Exception as error:
            raise CredentialsUnavailable(f"no credentials: {type(error).__name__}") from error
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)
