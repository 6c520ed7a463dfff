"""Action Cable on the AWS path: the stock clients, and what they cannot show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cable.tools import SECRET
from tests.conftest import fail_with, run_vitest
from tests.e2e.stack import AwsLocal, Missing
from tests.engines import Ministack

CLIENTS = Path(__file__).parent.parent / "cable" / "clients"

SETTINGS = {
    "TAILRACE_CABLE_READY": "true",
    "TAILRACE_STREAMS_WHISPER": "true",
    "TAILRACE_PING_INTERVAL": "1",
    "TAILRACE_PRESENCE_TTL": "1",
    "TAILRACE_EVENTS_LIFETIME": "5",
}


@pytest.fixture(scope="module")
def cable_local(ministack: Ministack) -> Iterator[AwsLocal]:
    access = {"secret": SECRET, "public_streams": "open/**"}
    try:
        with AwsLocal(variables=SETTINGS, ministack=ministack, access=access) as stack:
            yield stack
    except Missing as missing:
        pytest.skip(str(missing))


def test_stock_clients(cable_local: AwsLocal, tmp_path: Path) -> None:
    env = {"SERVER_URL": cable_local.url, "SECRET": SECRET}
    tests = run_vitest(CLIENTS, tmp_path / "report.json", env, seconds=200)
    print(cable_local.output())
    fail_with(test for test in tests if test.status != "passed")
    assert len(tests) > 40
