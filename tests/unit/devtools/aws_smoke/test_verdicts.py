"""Verdicts of the smoke test, from figures as AWS might produce them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from devtools.aws_smoke.findings import Finding, Outcome
from devtools.aws_smoke.functions import judge_snapshots, judge_utilization, start_metrics
from devtools.aws_smoke.operations import judge_job, judge_rotation
from devtools.aws_smoke.requests import judge_basics, judge_paths, judge_remapped
from devtools.aws_smoke.sharing import Wait, judge_collapsing
from devtools.aws_smoke.streaming import (
    Delays,
    Seen,
    data_lines,
    judge_hold_back,
    judge_late_joiner,
    judge_viewer_header,
)
from devtools.aws_smoke.websockets import PROTOCOL, judge_websocket

STATUSES = {"PUT": 201, "GET": 200, "304": 304, "HEAD": 200, "DELETE": 204}
QUICK = dict.fromkeys(STATUSES, 0.1)


def passes(finding: Finding) -> bool:
    assert finding.outcome in (Outcome.PASS, Outcome.FAIL)
    return finding.outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("statuses", "seconds", "complete", "gone", "said"),
    [
        ({}, {}, True, 404, "streams are created"),
        ({}, {}, True, 410, "streams are created"),
        ({"HEAD": 502}, {}, True, 404, "HEAD: 502"),
        ({}, {"304": 21.0}, True, 404, "304 took 21 s"),
        ({}, {}, False, 404, "not what was appended"),
        ({}, {}, True, 200, "GET after DELETE: 200"),
    ],
)
def test_basics(
    statuses: dict[str, int], seconds: dict[str, float], complete: bool, gone: int, said: str
) -> None:
    finding = judge_basics(
        {**STATUSES, **statuses}, {**QUICK, **seconds}, [0.01, 0.02], complete=complete, gone=gone
    )
    assert said in finding.summary
    assert passes(finding) == said.startswith("streams")
    assert finding.numbers["append_p50_ms"] == pytest.approx(15)


def test_a_name_that_is_spelled_differently_on_its_way_is_refused() -> None:
    assert passes(judge_paths({"!": 200, "'": 200}, []))
    finding = judge_paths({"!": 200, "'": 403, "+": 404}, [])
    assert not passes(finding)
    assert (finding.numbers["refused"], finding.numbers["other_errors"]) == (["'"], ["+ 404"])
    assert not passes(judge_paths({"!": 200}, ["!"]))


def test_only_unexpected_renamed_headers_fail() -> None:
    finding = judge_remapped({"http": {"www-authenticate"}, "live": set()}, challenged=True)
    assert passes(finding)
    assert finding.numbers["renamed_by_http"] == ["www-authenticate"]
    finding = judge_remapped({"http": {"etag", "date"}}, challenged=True)
    assert not passes(finding)
    assert "also rename etag" in finding.summary


def test_a_message_that_comes_with_the_next_one_was_held_back() -> None:
    prompt, held = Delays([0.1, 0.2], 0.5), Delays([0.1, 2.4], 0.5)
    assert passes(judge_hold_back(prompt, prompt, 2.0))
    finding = judge_hold_back(prompt, held, 2.0)
    assert not passes(finding)
    assert (finding.numbers["function_url_held_back"], finding.numbers["cloudfront_held_back"]) == (
        0,
        1,
    )


def test_only_data_events_carry_messages() -> None:
    lines = ["event: control", "data:{}", "", ": padding", "event: data", "data:0001", ""]
    assert list(data_lines(iter(lines))) == ["0001"]


@pytest.mark.parametrize(
    ("second", "passed", "said"),
    [
        (Seen(3, "a", first=3.2, news=6.1, ended=50), True, "streams along"),
        (Seen(3, "a", first=50.5, news=50.5, ended=51), False, "waits until the response has"),
        (Seen(3, "b", first=3.2, news=6.1, ended=53), False, "a response of its own"),
    ],
)
def test_a_late_joiner_shares_streams_along_or_waits(second: Seen, passed: bool, said: str) -> None:
    finding = judge_late_joiner(Seen(0, "a", first=0.3, news=6, ended=50), second)
    assert passes(finding) == passed
    assert said in finding.summary


@pytest.mark.parametrize(
    ("seen", "x_cache", "passed"),
    [
        (["1", "2", "3"], ["Miss from cloudfront", "Hit from cloudfront", "Hit"], True),
        (["1", "2", "3"], ["Miss from cloudfront"] * 3, False),
        (["1", "1", "1"], ["Miss from cloudfront", "Hit from cloudfront", "Hit"], False),
        (["", "", ""], ["Miss from cloudfront", "Hit from cloudfront", "Hit"], False),
    ],
)
def test_each_viewer_gets_its_own_header(seen: list[str], x_cache: list[str], passed: bool) -> None:
    assert passes(judge_viewer_header(seen, x_cache)) == passed


def waits(*requests: str, status: int = 200, body: str = "news") -> list[Wait]:
    return [Wait(status, body, each, "Hit from cloudfront", "0", 20.0) for each in requests]


def test_collapsing_counts_the_responses_of_the_origin() -> None:
    (again,) = waits("c", status=204, body="")
    idle = waits("c", "c", "c", status=204, body="")
    finding = judge_collapsing(waits("a", "a", "b"), idle, again)
    assert passes(finding)
    numbers = finding.numbers
    assert (numbers["origin_requests"], numbers["origin_requests_when_idle"]) == (2, 1)
    assert numbers["cached_204_is_reused"] is True
    (later,) = waits("d", status=204, body="")
    assert judge_collapsing(waits("a"), idle, later).numbers["cached_204_is_reused"] is False


def test_waits_that_are_not_shared_or_lose_data_fail() -> None:
    (again,) = idle = waits("c", status=204, body="")
    assert "not shared" in judge_collapsing(waits(*"abcd"), idle, again).summary
    assert not passes(judge_collapsing(waits("a"), waits(*"abcd", status=204), again))
    missed = judge_collapsing([*waits("a"), *waits("a", status=204, body="")], idle, again)
    assert not passes(missed)
    assert "1 readers missed the data" in missed.summary


def test_a_websocket_needs_every_step() -> None:
    good: dict[str, Any] = {
        "welcomed": True,
        "confirmed": True,
        "message": {"n": 1},
        "welcome_seconds": 0.5,
        "broadcast_seconds": 0.1,
        "protocol": PROTOCOL,
    }
    assert passes(judge_websocket(**good))
    for name, value in (("welcomed", False), ("confirmed", False), ("message", None)):
        assert not passes(judge_websocket(**{**good, name: value}))
    assert judge_websocket(**{**good, "protocol": None}).summary == "no subprotocol"


def utilization(percent: float, errors: float = 0, throttles: float = 0) -> dict[str, float]:
    return {
        "FunctionComputeUtilization": percent,
        "FunctionExecutionErrors": errors,
        "FunctionThrottles": throttles,
    }


def test_the_edge_functions_stay_below_their_limit_without_errors() -> None:
    assert passes(judge_utilization({"one": utilization(40), "two": utilization(12)}))
    finding = judge_utilization({"one": utilization(40), "two": utilization(92)})
    assert not passes(finding)
    assert "92 %" in finding.summary
    assert not passes(judge_utilization({"one": utilization(40, errors=3)}))
    assert not passes(judge_utilization({"one": utilization(40, throttles=1)}))


def report(**metrics: float) -> str:
    metrics = {"durationMs": 12.0, **metrics}
    return json.dumps({"type": "platform.report", "record": {"metrics": metrics}})


def test_starts_of_environments_are_read_from_the_logs() -> None:
    messages = [
        report(initDurationMs=800),
        report(),
        "no JSON",
        "[]",
        report(restoreDurationMs=300),
    ]
    found = start_metrics(messages)
    assert [each.get("initDurationMs") for each in found] == [800, None]
    assert [each.get("restoreDurationMs") for each in found] == [None, 300]


def test_snapshots_restore_quickly_or_fail() -> None:
    live = [{"initDurationMs": 700.0}]
    finding = judge_snapshots({"Http": [{"restoreDurationMs": 250.0}], "Live": live})
    assert passes(finding)
    assert (finding.numbers["restore_p50_ms"], finding.numbers["init_of_live_max_ms"]) == (250, 700)
    slow = {"Http": [{"restoreDurationMs": 2_500.0}], "Live": live}
    assert not passes(judge_snapshots(slow))
    assert "no environment" in judge_snapshots({"Http": live, "Live": live}).summary


def test_a_rotation_refuses_no_request() -> None:
    assert passes(judge_rotation({200: 50, 204: 50}, done=True, seconds=240))
    finding = judge_rotation({200: 50, 204: 48, 403: 2}, done=True, seconds=240)
    assert not passes(finding)
    assert finding.numbers["failed_requests"] == 2
    denied = judge_rotation({200: 9}, done=False, seconds=900, reason="AccessDenied")
    assert "AccessDenied" in denied.summary
    assert not passes(denied)


def test_a_job_has_to_succeed() -> None:
    started = datetime(2026, 1, 1, tzinfo=UTC)
    run = {
        "JobRunState": "SUCCEEDED",
        "StartedOn": started,
        "CompletedOn": started + timedelta(seconds=95),
        "ExecutionTime": 61,
        "DPUSeconds": 122.0,
        "NumberOfWorkers": 2,
    }
    finding = judge_job(run, 1.0)
    assert passes(finding)
    assert finding.numbers["from_start_to_end_s"] == 95
    assert "up to 1 executors" in finding.summary
    failed = judge_job({"JobRunState": "FAILED", "ErrorMessage": "no pip"}, None)
    assert not passes(failed)
    assert failed.summary == "the run FAILED: no pip"
