"""The official suite and the stock clients, with live reads from containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.engines.ministack import Ministack
from devtools.local_aws.stack import AwsLocal, Missing
from devtools.node import run_vitest
from devtools.processes import ROOT, free_ports
from tests.conftest import fail_with
from tests.e2e.test_aviso import client, test_listeners_miss_nothing_across_reconnects
from tests.integration.client.test_python import (
    test_append_and_catch_up,
    test_async_read,
    test_bytes_and_text,
    test_create_head_and_delete,
    test_fork_by_headers,
    test_live_read_gets_later_appends,
    test_sequence_conflict,
    test_sse_ends_on_a_closed_stream,
    url,
)
from tests.support.conformance.official import check

__all__ = [
    "client",
    "test_append_and_catch_up",
    "test_async_read",
    "test_bytes_and_text",
    "test_create_head_and_delete",
    "test_fork_by_headers",
    "test_listeners_miss_nothing_across_reconnects",
    "test_live_read_gets_later_appends",
    "test_sequence_conflict",
    "test_sse_ends_on_a_closed_stream",
    "url",
]


def test_official_suite_passes(ministack: Ministack, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    # Receivers of webhooks call back by the URL of the viewers, which is not https here.
    variables = {"TAILRACE_PUBLIC_URL": f"http://127.0.0.1:{port}"}
    variant = "local-open-brief-containers"
    try:
        with AwsLocal(
            variables=variables, variant=variant, ministack=ministack, port=port
        ) as stack:
            check(stack, tmp_path)
            assert sum(stack.requests("containers").values()) > 0
    except Missing as missing:
        pytest.skip(str(missing))


def test_javascript_client(containers_local: AwsLocal, tmp_path: Path) -> None:
    env = {"SERVER_URL": containers_local.url}
    folder = ROOT / "tests" / "integration" / "client"
    tests = run_vitest(folder, tmp_path / "report.json", env)
    fail_with(test for test in tests if test.status != "passed")
    assert tests
