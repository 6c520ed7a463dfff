from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

import pytest

from tailrace import metrics
from tailrace.settings import Settings
from tailrace.web import log_lines
from tailrace.web.log_lines import AccessLog, AnsweredRequest, JsonFormatter, is_json, name_outcome
from tailrace.web.messages import RawHeaders

ID: RawHeaders = [(b"etag", b"x"), (b"x-request-id", b"r-1")]
NOW = 1_780_000_000.25


def entry(
    method: str = "POST", url: bytes = b"/v1/stream/chat/a%20b", **fields: Any
) -> AnsweredRequest:
    values: dict[str, Any] = {"status": 204, "headers": ID, "body": b"", "received": 7}
    return AnsweredRequest(method, url, **{**values, "seconds": 0.01234, "ended": NOW, **fields})


def record(log: AccessLog, status: int = 200, seconds: float = 0.0, url: bytes = b"/") -> int:
    """Record a request; returns how many lines wait."""
    log.record("GET", url, status, ID, b"", 0, seconds)
    return len(log._queue)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    lines: list[bytes] = []
    monkeypatch.setattr(log_lines, "write_all", lambda data: lines.extend(data.splitlines()))
    return lines


def test_a_line_in_json_has_all_that_identifies_a_request() -> None:
    line = AccessLog(Settings(log_format="json")).render(entry())
    assert line.endswith(b"}\n")
    assert json.loads(line) == {
        "time": "2026-05-28T20:26:40.250+00:00",
        "level": "INFO",
        "message": "append done",
        "operation": "append",
        "method": "POST",
        "stream": "chat/a b",
        "status": 204,
        "outcome": "done",
        "bytes": 7,
        "ms": 12.34,
        "request_id": "r-1",
    }


def test_a_line_for_people_fits_on_a_terminal() -> None:
    line = AccessLog(Settings(log_format="text")).render(entry(url=b"/v1/stream/a%1b%0a"))
    assert line.decode().split(maxsplit=1)[1] == "204 append a?? done 12.34 ms 7 B r-1\n"


@pytest.mark.parametrize(
    ("method", "url", "operation"),
    [
        ("PUT", b"/v1/stream/a", "create"),
        ("POST", b"/ds/a", "append"),
        ("HEAD", b"/v1/stream/a", "head"),
        ("DELETE", b"/v1/stream/a", "delete"),
        ("GET", b"/v1/stream/a?offset=-1", "read"),
        ("GET", b"/v1/stream/a?offset=now&live=sse", "sse"),
        ("GET", b"/v1/stream/a?live=long-poll", "long-poll"),
        ("GET", b"/health", "other"),
    ],
)
def test_operations_have_names(method: str, url: bytes, operation: str) -> None:
    line = AccessLog(Settings(log_format="json")).render(entry(method, url))
    assert json.loads(line)["operation"] == operation


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (201, b"", "created"),
        (304, b"", "not-modified"),
        (200, b'{"error":{"code":"X"}}', "ok"),
        (409, b'{"error":{"code":"STREAM_CLOSED","message":"m"}}', "STREAM_CLOSED"),
        (404, b"", "status-404"),
        (500, b'{"code":"NOTIFICATION_STORAGE_FAILED"}', "NOTIFICATION_STORAGE_FAILED"),
    ],
)
def test_outcomes_have_names(status: int, body: bytes, outcome: str) -> None:
    assert name_outcome(status, body) == outcome


def test_nothing_after_the_question_mark_is_logged() -> None:
    secret = entry("GET", b"/v1/stream/a?signed=s3Krit&jid=s3Krit")
    for kind in ("json", "text"):
        assert b"s3Krit" not in AccessLog(Settings(log_format=kind)).render(secret)


def test_json_is_a_sample_of_the_successes_and_all_of_the_rest() -> None:
    log = AccessLog(Settings(log_format="json", log_sample=0.25))
    assert [record(log) for _ in range(8)] == [0, 0, 0, 1, 1, 1, 1, 2]
    assert record(log, status=404) == 3
    assert record(log, seconds=1.0) == 4, "it was slow"
    log = AccessLog(Settings(log_format="json", log_sample=0))
    assert record(log, seconds=60, url=b"/v1/stream/a?live=sse") == 0, "it only waited"


def test_text_is_every_request_unless_the_level_is_higher() -> None:
    log = AccessLog(Settings(log_format="text", log_sample=0))
    assert [record(log) for _ in range(3)] == [1, 2, 3]
    assert record(AccessLog(Settings(log_format="text", log_level="warning")), status=500) == 0


def test_every_request_is_counted() -> None:
    counts = dict(metrics.counts)
    log = AccessLog(Settings(log_format="json", log_sample=0))
    for status in (200, 204, 304, 404, 503):
        record(log, status)
    for name, expected in (("2xx", 2), ("3xx", 1), ("4xx", 1), ("5xx", 1)):
        key = (f"answers_{name}_total",)
        assert metrics.counts[key] - counts.get(key, 0) == expected


def test_lines_are_written_by_a_thread_and_the_last_ones_at_the_end(written: list[bytes]) -> None:
    with AccessLog(Settings(log_format="json", log_sample=1)) as log:
        record(log)
        record(log, status=500)
    assert [json.loads(line)["level"] for line in written] == ["INFO", "ERROR"]


def test_a_log_that_is_too_slow_drops_lines_and_says_so(
    written: list[bytes], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_lines, "LOG_QUEUE_LINES", 3)
    log = AccessLog(Settings(log_format="json", log_sample=1))
    for _ in range(5):
        record(log)
    with log:
        pass
    assert len(written) == 3
    assert "2 lines of requests were not written" in caplog.text


def test_the_format_is_text_on_a_terminal_and_json_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for is_terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda shown=is_terminal: shown)
        assert is_json(Settings()) is not is_terminal
        assert is_json(Settings(log_format="json"))
        assert not is_json(Settings(log_format="text"))


def test_other_lines_are_json_with_their_traceback() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        made = logging.LogRecord("a", logging.ERROR, "f", 1, "it %s", ("broke",), sys.exc_info())
    line = json.loads(JsonFormatter().format(made))
    assert (line["level"], line["message"], line["logger"]) == ("ERROR", "it broke", "a")
    assert line["traceback"].endswith("ValueError: no")


def test_a_closed_stderr_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(os, "write", refuse)
    log_lines.write_all(b"line\n")
