"""The official conformance suite of the protocol, through the whole AWS path.

Its tests with random input, which are about the log, are in `tests/slow/e2e`, and in
`tests/integration/conformance` on the same store.
"""

from __future__ import annotations

from pathlib import Path

from devtools.local_aws.stack import AwsLocal
from tests.support.conformance.official import check


def test_official_suite_passes_through_the_whole_path(aws_local: AwsLocal, tmp_path: Path) -> None:
    check(aws_local, tmp_path, properties=False)
    assert sum(aws_local.requests("live").values()) > 0
