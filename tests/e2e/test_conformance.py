"""The official conformance suite of the protocol, through the whole AWS path."""

from __future__ import annotations

from pathlib import Path

from devtools.local_aws.stack import AwsLocal
from tests.support.conformance.official import check


def test_official_suite_passes_through_the_whole_path(aws_local: AwsLocal, tmp_path: Path) -> None:
    check(aws_local, tmp_path, subscriptions=False)
    assert sum(aws_local.requests("live").values()) > 0
