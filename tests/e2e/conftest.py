"""The path that the tests of this folder share; they keep apart by the names of their streams."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import httpx
import pytest

from tests.e2e.private import ACCESS
from tests.e2e.stack import AwsLocal, Missing
from tests.engines import Ministack

# Live reads are shorter than deployed ones, so that waiting for their end costs no minutes.
VARIABLES = {
    "TAILRACE_LONG_POLL_TIMEOUT": "2",
    "TAILRACE_SSE_LIFETIME": "5",
    "TAILRACE_AVISO_MAX_DURATION": "3",
}


@pytest.fixture(scope="session")
def aws_local(ministack: Ministack) -> Iterator[AwsLocal]:
    try:
        with AwsLocal(variables=VARIABLES, ministack=ministack) as stack:
            yield stack
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def closed_local(ministack: Ministack) -> Iterator[AwsLocal]:
    """The same, where credentials count."""
    try:
        with AwsLocal(variables=VARIABLES, ministack=ministack, access=ACCESS) as stack:
            yield stack
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def viewer(aws_local: AwsLocal) -> Iterator[httpx.Client]:
    """Somebody in front of the edge."""
    with httpx.Client(base_url=aws_local.url, timeout=30, trust_env=False) as client:
        yield client


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        stack = item.funcargs.get("aws_local", item.funcargs.get("closed_local"))
        if isinstance(stack, AwsLocal):
            report.sections.append(("output of the path", stack.output()))
    return report
