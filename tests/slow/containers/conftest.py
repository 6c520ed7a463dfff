"""Tests of the functions and of the server, of which containers now serve the live part."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devtools.engines.ministack import Ministack
from devtools.local_aws.stack import AwsLocal, Missing
from tests.e2e.conftest import CLOSED, containers_local, upload_schema
from tests.e2e.private import ACCESS

__all__ = ["containers_local"]


@pytest.fixture(scope="module")
def server(containers_local: AwsLocal) -> AwsLocal:
    """In the place of the server that the tests of clients use."""
    return containers_local


@pytest.fixture(scope="module")
def aws_local(containers_local: AwsLocal) -> AwsLocal:
    return containers_local


@pytest.fixture(scope="session")
def closed_local(ministack: Ministack) -> Iterator[AwsLocal]:
    """Containers that also serve writes and cables, where credentials count."""
    variables = {**CLOSED, "TAILRACE_AVISO_SCHEMA": upload_schema(ministack)}
    try:
        with AwsLocal(
            variables=variables,
            variant="local-closed-brief-contained",
            ministack=ministack,
            access=ACCESS,
        ) as stack:
            yield stack
    except Missing as missing:
        pytest.skip(str(missing))
