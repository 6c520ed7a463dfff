"""Local AWS stacks that the tests of this folder share; tests use streams of their own.

A run starts three: one where everybody may do everything, one where credentials count, with the
settings of every protocol and event types of its own, and one with containers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import boto3
import httpx
import pytest

from devtools.engines.ministack import Ministack
from devtools.local_aws.environments import REGION
from devtools.local_aws.stack import AwsLocal, Missing
from devtools.processes import ROOT, fresh_name
from tests.e2e.private import ACCESS, GUARDED

SECONDS = 300.0
"""Time-out of a client: a safety net."""

# Live reads are shorter than deployed ones, so that waiting for their end costs no minutes.
VARIABLES = {
    "TAILRACE_SSE_LIFETIME": "5",
    "TAILRACE_AVISO_MAX_DURATION": "3",
}
# Here they are as long as the function's time allows: tests that follow one must not race its end.
CLOSED = {
    "TAILRACE_SSE_LIFETIME": "50",
    "TAILRACE_AVISO_MAX_DURATION": "50",
    "TAILRACE_AVISO_ADMIN_ROLES": "ops=admin",
    "TAILRACE_CABLE_READY": "true",
    "TAILRACE_STREAMS_WHISPER": "true",
    "TAILRACE_PING_INTERVAL": "1",
    "TAILRACE_PRESENCE_TTL": "1",
    "TAILRACE_EVENTS_LIFETIME": "3",
    "TAILRACE_MISSING_WAITS": "12",
}


@pytest.fixture(scope="session")
def aws_local(ministack: Ministack) -> Iterator[AwsLocal]:
    try:
        with AwsLocal(
            variables=VARIABLES, variant="local-open-brief", ministack=ministack
        ) as stack:
            yield stack
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def closed_local(ministack: Ministack) -> Iterator[AwsLocal]:
    """The same, where credentials count; the schema of Aviso is an object in S3."""
    variables = {**CLOSED, "TAILRACE_AVISO_SCHEMA": upload_schema(ministack)}
    try:
        with AwsLocal(
            variables=variables, variant="local-closed-brief", ministack=ministack, access=ACCESS
        ) as stack:
            yield stack
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def containers_local(ministack: Ministack) -> Iterator[AwsLocal]:
    """Two containers serve the live reads, as long as they may last."""
    variables = {"TAILRACE_AVISO_MAX_DURATION": "3"}
    try:
        with AwsLocal(
            variables=variables, variant="local-open-brief-containers", ministack=ministack
        ) as stack:
            yield stack
    except Missing as missing:
        pytest.skip(str(missing))


def upload_schema(ministack: Ministack) -> str:
    """Puts the schema that comes along, with one more event type, into a bucket."""
    schema = ROOT / "layers/core/python/tailrace/protocols/aviso/schema.yaml"
    bucket = fresh_name("schemas")
    s3 = boto3.client(
        "s3",
        endpoint_url=ministack.url,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="own.yaml", Body=(schema.read_text() + GUARDED).encode())
    s3.close()
    return f"s3://{bucket}/own.yaml"


@pytest.fixture
def viewer(aws_local: AwsLocal) -> Iterator[httpx.Client]:
    """A client of the edge."""
    with httpx.Client(base_url=aws_local.url, timeout=SECONDS, trust_env=False) as client:
        yield client


@pytest.fixture
def guarded(closed_local: AwsLocal) -> Iterator[httpx.Client]:
    """A client of the edge where credentials count."""
    with httpx.Client(base_url=closed_local.url, timeout=SECONDS, trust_env=False) as client:
        yield client


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for stack in item.funcargs.values():
            if isinstance(stack, AwsLocal):
                report.sections.append(("output of the path", stack.output()))
    return report
