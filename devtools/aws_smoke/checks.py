"""The checks, in the order in which they run: the cheap and decisive ones first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from devtools.aws_smoke.findings import Finding, NotMeasured, Outcome
from devtools.aws_smoke.functions import measure_snapshots, measure_utilization
from devtools.aws_smoke.operations import measure_job, measure_rotation
from devtools.aws_smoke.requests import measure_basics, measure_paths, measure_remapped
from devtools.aws_smoke.sharing import measure_collapsing
from devtools.aws_smoke.streaming import (
    measure_hold_back,
    measure_late_joiner,
    measure_viewer_header,
)
from devtools.aws_smoke.target import Target
from devtools.aws_smoke.websockets import measure_websocket


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    question: str
    minutes: float
    """How long it takes on AWS, about."""
    dollars: float
    """Its price there at most, without that of the deployment itself."""
    measure: Callable[[Target], Finding]
    here: str
    """Why a success on the local AWS says nothing about AWS; empty: it does say something."""
    needs_probe: bool = False


CHECKS: Final = (
    Check(
        "basics",
        "Are streams created, appended to, read and deleted, without a hanging response?",
        0.2,
        0.001,
        measure_basics,
        "",
    ),
    Check(
        "paths",
        "Do functions get paths with !$&'()*+,;=:@ as the edge function signs them?",
        2,
        0.001,
        measure_paths,
        "the local edge and function URL pass paths on as they are; Lambda's may not",
    ),
    Check(
        "hold-back",
        "Do a streaming function URL and CloudFront pass on small chunks at once?",
        0.5,
        0.001,
        measure_hold_back,
        "the local function URL and edge hold nothing back; Lambda's and CloudFront may",
    ),
    Check(
        "collapsing",
        "How many origin requests do readers make that wait long for the same data?",
        3,
        0.002,
        measure_collapsing,
        "a Varnish collapses here, in CloudFront's place",
    ),
    Check(
        "late-joiner",
        "Does a late reader stream along with a response under way?",
        2,
        0.001,
        measure_late_joiner,
        "only CloudFront can tell: the second distribution is not deployed here",
        needs_probe=True,
    ),
    Check(
        "viewer-header",
        "Does a viewer-response function see a header that viewer-request has set?",
        0.1,
        0.001,
        measure_viewer_header,
        "only CloudFront can tell: the second distribution is not deployed here",
        needs_probe=True,
    ),
    Check(
        "websocket",
        "Does a WebSocket go through CloudFront, and do broadcasts arrive?",
        0.2,
        0.001,
        measure_websocket,
        "the upgrade is passed on by the local edge, not by CloudFront and API Gateway",
    ),
    Check(
        "remapped",
        "Which response headers does a function URL rename?",
        0.1,
        0.001,
        measure_remapped,
        "the local function URL renames the headers that it was written to rename",
    ),
    Check(
        "utilization",
        "How much of its time limit does the edge function use?",
        5,
        0.001,
        measure_utilization,
        "there is no metric: the function runs in Node, without CloudFront's time limit",
    ),
    Check(
        "snapshots",
        "How long do environments take to start, from a snapshot and without?",
        3,
        0.01,
        measure_snapshots,
        "there are no snapshots here",
    ),
    Check(
        "rotation",
        "May the rotation do what it does, and does no request fail meanwhile?",
        8,
        0.002,
        measure_rotation,
        "there are no permissions here, and nothing that starts a rotation",
    ),
    Check(
        "job",
        "Does compaction run on Glue, and on how many workers?",
        5,
        0.15,
        measure_job,
        "there is no Glue here",
    ),
)
NAMES: Final = tuple(check.name for check in CHECKS)


def run(check: Check, target: Target) -> Finding:
    """Measure, and judge what the place of the measurement allows to judge."""
    try:
        finding = check.measure(target)
    except (NotMeasured, ClientError, BotoCoreError) as error:
        if target.account is None:
            return Finding(Outcome.NOT_HERE, check.here or str(error))
        return Finding(Outcome.NOT_MEASURED, str(error))
    except Exception as error:  # noqa: BLE001 - the other checks are worth the deployment
        return Finding(Outcome.FAIL, f"{type(error).__name__}: {error}")
    if target.account is None and check.here and finding.outcome is Outcome.PASS:
        return Finding(Outcome.NOT_HERE, check.here, finding.numbers)
    return finding
