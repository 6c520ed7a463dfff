"""Checks of what runs by itself: the rotation of the origin secret, and a job of Glue."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx

from devtools.aws_smoke.findings import Finding, NotMeasured, Number, judge
from devtools.aws_smoke.target import Account, Target, wait_until

REQUEST_PAUSE: Final = 0.5
JOB_PAUSE: Final = 5.0
ENTRIES: Final = 200
"""Appended before the job runs, so that it has something to read."""
JOB_SECONDS: Final = 1_800.0
ENDED: Final = frozenset({"SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED"})
EXECUTORS: Final = "glue.driver.ExecutorAllocationManager.executors.numberAllExecutors"


def measure_rotation(target: Target) -> Finding:
    """Rotate the origin secret while a client appends and reads."""
    account = target.in_account
    client = account.client("secretsmanager")
    secret = account.output("OriginSecretArn")
    path, statuses = target.stream("rotation"), Counter[int]()
    # The first rotation is part of the deployment.
    if not wait_until(lambda: not _pending(client, secret), target.pace.metrics):
        raise NotMeasured("the first rotation has not ended")
    before = _current(client, secret)
    begun = time.monotonic()
    with target.viewer() as viewer:
        viewer.create(path)
        client.rotate_secret(SecretId=secret)

        def rotated() -> bool:
            for method, scope, body in (("POST", "write", "a"), ("GET", "read", "")):
                headers = {"content-type": "text/plain", **viewer.bearer(scope)}
                try:
                    statuses[viewer.send(method, path, headers, body).status_code] += 1
                except httpx.HTTPError:
                    statuses[0] += 1
            return _current(client, secret) != before

        done = wait_until(rotated, target.pace.metrics, REQUEST_PAUSE)
        for _ in range(10):
            rotated()
    reason = "" if done else _last_error(account)
    return judge_rotation(statuses, done=done, seconds=time.monotonic() - begun, reason=reason)


def judge_rotation(
    statuses: Mapping[int, int], *, done: bool, seconds: float, reason: str = ""
) -> Finding:
    refused = sum(times for status, times in statuses.items() if status not in (200, 204))
    summary = "the secret was rotated, and no request was refused"
    if not done:
        summary = f"the secret was not rotated in {seconds:.0f} s: {reason or 'see RotationFailed'}"
    elif refused:
        summary = f"{refused} requests failed during the rotation"
    return judge(
        done and not refused,
        summary,
        requests=sum(statuses.values()),
        failed_requests=refused,
        statuses=[f"{status} x {times}" for status, times in sorted(statuses.items())],
        rotation_s=seconds,
    )


def _versions(client: Any, secret: str) -> Mapping[str, list[str]]:
    found: Mapping[str, list[str]] = client.describe_secret(SecretId=secret)["VersionIdsToStages"]
    return found


def _current(client: Any, secret: str) -> str:
    return next(v for v, stages in _versions(client, secret).items() if "AWSCURRENT" in stages)


def _pending(client: Any, secret: str) -> bool:
    return any(
        "AWSPENDING" in stages and "AWSCURRENT" not in stages
        for stages in _versions(client, secret).values()
    )


def _last_error(account: Account) -> str:
    events = account.client("logs").filter_log_events(
        logGroupName=account.output("RotateSecretLogGroup"), filterPattern='"ERROR"'
    )["events"]
    return str(events[-1]["message"])[:500] if events else ""


def measure_job(target: Target) -> Finding:
    """Run compaction once: it starts on Glue's own machinery, pip and permissions."""
    account = target.in_account
    path = target.stream("compaction")
    with target.viewer() as viewer:
        viewer.create(path)
        for number in range(ENTRIES):
            viewer.append(path, f"{number}\n")
    glue, job = account.client("glue"), account.output("CompactHistoryJobName")
    run = glue.start_job_run(JobName=job)["JobRunId"]
    found: dict[str, Any] = {}

    def ended() -> bool:
        found.update(glue.get_job_run(JobName=job, RunId=run)["JobRun"])
        return found["JobRunState"] in ENDED

    if not wait_until(ended, min(JOB_SECONDS, target.pace.metrics * 2), JOB_PAUSE):
        glue.batch_stop_job_run(JobName=job, JobRunIds=[run])
        raise AssertionError(f"the run is {found.get('JobRunState')} after {JOB_SECONDS:.0f} s")
    return judge_job(found, _executors(account, job, run))


def judge_job(run: Mapping[str, Any], executors: float | None) -> Finding:
    state = run["JobRunState"]
    started, completed = run.get("StartedOn"), run.get("CompletedOn")
    whole = (completed - started).total_seconds() if started and completed else None
    numbers: dict[str, Number] = {
        "state": state,
        "execution_s": run.get("ExecutionTime"),
        "from_start_to_end_s": whole,
        "dpu_seconds": run.get("DPUSeconds"),
        "most_workers": run.get("NumberOfWorkers"),
        "most_executors": executors,
    }
    reason = run.get("ErrorMessage", "")
    return judge(
        state == "SUCCEEDED",
        f"the run {state}{f': {reason}' if reason else ''}"
        + ("" if executors is None else f", with up to {executors:.0f} executors"),
        **numbers,
    )


def _executors(account: Account, job: str, run: str) -> float | None:
    """The most executors of a run; None if Glue has not published the metric (yet)."""
    now = datetime.now(UTC)
    points = account.client("cloudwatch").get_metric_statistics(
        Namespace="Glue",
        MetricName=EXECUTORS,
        Dimensions=[
            {"Name": "JobName", "Value": job},
            {"Name": "JobRunId", "Value": run},
            {"Name": "Type", "Value": "gauge"},
        ],
        StartTime=now - timedelta(hours=1),
        EndTime=now,
        Period=60,
        Statistics=["Maximum"],
    )["Datapoints"]
    return max((point["Maximum"] for point in points), default=None)
