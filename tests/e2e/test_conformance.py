"""The official conformance suite of the protocol, through the whole AWS path."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.engines.ministack import Ministack
from devtools.local_aws.stack import AwsLocal, Missing
from devtools.processes import free_ports
from tests.e2e.conftest import VARIABLES
from tests.support.conformance.official import check


def test_official_suite_passes_through_the_whole_path(ministack: Ministack, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    # Receivers of webhooks call back by the URL of the viewers, which is not https here.
    variables = {**VARIABLES, "TAILRACE_PUBLIC_URL": f"http://127.0.0.1:{port}"}
    try:
        with AwsLocal(
            variables=variables, variant="local-open-brief", ministack=ministack, port=port
        ) as aws_local:
            check(aws_local, tmp_path)
            assert sum(aws_local.requests("live").values()) > 0
    except Missing as missing:
        pytest.skip(str(missing))
