"""The checks of `scripts/aws-smoke` on the local AWS: they measure, and claim nothing about AWS."""

from __future__ import annotations

import pytest

from devtools.aws_smoke.checks import CHECKS, Check, run
from devtools.aws_smoke.findings import Outcome
from devtools.aws_smoke.target import Target
from devtools.local_aws.stack import AwsLocal
from tests.e2e.private import ACCESS

MEASURED = {
    "basics": "append_p50_ms",
    "paths": "characters",
    "hold-back": "cloudfront_p50_ms",
    "websocket": "broadcast_ms",
    "remapped": "renamed_by_http",
}
"""The checks that measure something here, with one of their figures."""


@pytest.fixture(scope="module")
def target(closed_local: AwsLocal) -> Target:
    return Target.from_local(closed_local, ACCESS["secret"].split()[0])


@pytest.mark.parametrize(
    "check", [each for each in CHECKS if each.name != "collapsing"], ids=lambda check: check.name
)
def test_a_check_passes_here_only_if_the_local_aws_can_tell(check: Check, target: Target) -> None:
    finding = run(check, target)
    expected = Outcome.NOT_HERE if check.here else Outcome.PASS
    assert finding.outcome is expected, finding
    if check.here:
        assert finding.summary == check.here
    assert bool(finding.numbers) == (check.name in MEASURED)
    assert check.name not in MEASURED or MEASURED[check.name] in finding.numbers


def test_collapsing_counts_the_origin_requests_of_all_readers(
    closed_local: AwsLocal, target: Target
) -> None:
    (collapsing,) = (check for check in CHECKS if check.name == "collapsing")
    finding = collapsing.measure(target)
    path = target.stream("collapsing")
    asked = sum(
        times
        for function in closed_local.urls
        for (method, url), times in closed_local.requests(function).items()
        if method == "GET" and url.startswith(path) and "live=long-poll" in url
    )
    numbers = finding.numbers
    counted = [numbers[f"origin_requests{which}"] for which in ("", "_when_idle")]
    # One more asks once everybody was answered, and may get the cached response.
    assert asked - sum(each for each in counted if isinstance(each, int)) in (0, 1), finding
    # How many readers are in time for one request depends on the machine, but none misses anything.
    assert "missed" not in finding.summary, finding
