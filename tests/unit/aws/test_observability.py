"""Logs, metrics and traces of a function."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from devtools.processes import ROOT
from tailrace.aws.client.json_client import OUTCOMES, Call
from tailrace.aws.costs import LINE_BYTES, VALUE_BYTES
from tailrace.aws.runtime.metrics import METRICS
from tailrace.aws.runtime.observability import (
    LINE_APPENDS,
    LINE_SECONDS,
    ObservedApp,
    Observer,
)
from tailrace.settings import Settings
from tailrace.web.asgi import Message, Receive, Scope, Send

DOCS = ROOT / "docs" / "metrics.md"


class Context(NamedTuple):
    aws_request_id: str = "request-1"


class Answers:
    """An application that logs a line and answers with one status."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.headers: Any = None
        """Of the last request."""

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        self.headers = scope["headers"]
        logging.getLogger("tailrace").warning("at work")
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Fails:
    async def __call__(self, *_: Any) -> None:
        raise ZeroDivisionError


class Watched:
    """An application under observation, and what was said."""

    def __init__(
        self, app: Any, capsys: pytest.CaptureFixture[str], settings: Settings | None = None
    ) -> None:
        self.observer = Observer("http", settings or Settings())
        self.outcomes: Counter[str] = Counter()
        self.app = ObservedApp(app, self.observer, self.outcomes)
        self._capsys = capsys

    async def ask(
        self,
        method: str,
        path: str = "/v1/stream/chat/room",
        query: str = "",
        name: bytes = b"",
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The metrics of a request with what is told beside them, and the log lines before."""

        async def receive() -> Message:
            return {"type": "http.request"}

        async def send(_: Message) -> None:
            pass

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [*headers, *([(b"x-request-id", name)] if name else [])],
            "aws.context": Context(),
        }
        handler = self.observer.log.registered_handler
        assert isinstance(handler, logging.StreamHandler)
        handler.stream = sys.stdout  # It has that of whichever test came first, closed by now.
        await self.app(scope, receive, send)
        out, err = self._capsys.readouterr()
        assert err == ""
        lines = [json.loads(line) for line in out.splitlines()]
        return (lines or [{}])[-1], lines[:-1]


@pytest.fixture
def watched(capsys: pytest.CaptureFixture[str]) -> Watched:
    return Watched(Answers(200), capsys)


@pytest.mark.parametrize(
    ("query", "counted"),
    [
        ("", {"ds_requests_total"}),
        ("live=other", {"ds_requests_total"}),
        (
            "offset=-1&live=long-poll",
            {"ds_requests_total", "ds_poll_requests_total", "ds_poll_clients_num"},
        ),
        (
            "live=sse&offset=now",
            {"ds_requests_total", "ds_sse_requests_total", "ds_sse_clients_num"},
        ),
    ],
)
async def test_reads_are_counted_by_the_names_that_users_know(
    watched: Watched, query: str, counted: set[str]
) -> None:
    metrics, _ = await watched.ask("GET", query=query)
    found = {name: metrics[name] for name in metrics if name.startswith("ds_")}
    assert found == {name: [1.0] for name in counted}


@pytest.mark.parametrize(
    ("access", "headers", "unverified"),
    [
        ("closed", [], True),
        ("closed", [(b"x-tailrace-edge-token", b"an HMAC")], False),
        ("open", [], False),
    ],
    ids=["not verified", "verified", "open"],
)
async def test_reads_that_the_edge_could_not_verify_are_counted(
    capsys: pytest.CaptureFixture[str],
    access: str,
    headers: list[tuple[bytes, bytes]],
    unverified: bool,
) -> None:
    watched = Watched(Answers(200), capsys, Settings(access=access))
    metrics, _ = await watched.ask("GET", headers=headers)
    assert ("unverified_reads_total" in metrics) == unverified
    metrics, _ = await watched.ask("PUT", headers=headers)
    assert "unverified_reads_total" not in metrics


@pytest.mark.parametrize("method", ["HEAD", "PUT", "POST", "DELETE"])
async def test_only_reads_of_data_count_as_reads(watched: Watched, method: str) -> None:
    metrics, _ = await watched.ask(method, query="live=sse")
    assert not [name for name in metrics if name.startswith("ds_")]


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_requests_count_as_no_read(
    capsys: pytest.CaptureFixture[str], status: int
) -> None:
    metrics, _ = await Watched(Answers(status), capsys).ask("GET")
    assert "ds_requests_total" not in metrics
    assert metrics["answers_4xx_total"] == [1.0]


async def test_requests_of_other_paths_count_as_no_read(watched: Watched) -> None:
    metrics, _ = await watched.ask("GET", "/health")
    assert "ds_requests_total" not in metrics
    assert "stream" not in metrics


@pytest.mark.parametrize(
    ("status", "name"), [(204, "2xx"), (304, "3xx"), (409, "4xx"), (503, "5xx")]
)
async def test_answers_are_counted_by_their_kind(
    capsys: pytest.CaptureFixture[str], status: int, name: str
) -> None:
    metrics, _ = await Watched(Answers(status), capsys).ask("POST")
    assert metrics[f"answers_{name}_total"] == [1.0]
    assert metrics["status"] == status


async def test_an_application_that_fails_counts_as_5xx(capsys: pytest.CaptureFixture[str]) -> None:
    watched = Watched(Fails(), capsys)
    with pytest.raises(ZeroDivisionError):
        await watched.ask("GET")
    assert '"answers_5xx_total":[1.0]' in capsys.readouterr().out


async def test_the_first_request_is_a_cold_start(watched: Watched) -> None:
    first, _ = await watched.ask("GET")
    second, _ = await watched.ask("GET")
    assert first["cold_starts_total"] == [1.0]
    assert "cold_starts_total" not in second


async def test_outcomes_of_appends_are_counted_once(watched: Watched) -> None:
    watched.outcomes.update(appended=2, lost=1)
    first, _ = await watched.ask("POST")
    second, _ = await watched.ask("GET")
    assert first["appends_appended_total"] == [2.0]
    assert first["appends_lost_total"] == [1.0]
    assert "appends_appended_total" not in second


async def appended(watched: Watched, outcome: str = "appended") -> list[dict[str, Any]]:
    """The lines of metrics after an append of one write unit."""
    watched.observer.record_call(Call("PutItem", "ok", 1, 0.01, 0, 1.0))
    watched.outcomes.update({outcome: 1})
    metrics, before = await watched.ask("POST")
    return [line for line in [*before, metrics] if "_aws" in line]


async def test_plain_appends_within_ten_seconds_share_a_line(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    monkeypatch.setattr("tailrace.aws.runtime.observability.time.time", lambda: now[0])
    (first,) = await appended(watched)
    assert first["appends_appended_total"] == [1.0]
    for _ in range(3):
        now[0] += LINE_SECONDS / 4
        assert await appended(watched) == []
    now[0] += LINE_SECONDS / 4
    (line,) = await appended(watched)
    assert line["appends_appended_total"] == line["dynamodb_write_units"] == [4.0]
    assert len(line["request_ms"]) == 4
    assert line["others"] == 3
    now[0] += LINE_SECONDS
    (alone,) = await appended(watched)
    assert "others" not in alone


async def test_an_incident_is_written_at_once_with_all_that_waited(watched: Watched) -> None:
    await appended(watched)
    assert await appended(watched) == []
    (line,) = await appended(watched, "lost")
    assert (line["appends_appended_total"], line["appends_lost_total"]) == ([1.0], [1.0])
    assert await appended(watched) == []
    read, _ = await watched.ask("GET")
    assert (read["ds_requests_total"], read["appends_appended_total"]) == ([1.0], [1.0])


async def test_a_line_has_no_more_values_than_the_format_allows(watched: Watched) -> None:
    lines = [line for _ in range(3 * LINE_APPENDS) for line in await appended(watched)]
    assert [len(line["request_ms"]) for line in lines] == [1, 91, 91]


async def test_the_lines_of_plain_appends_are_as_short_as_the_costs_say(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "tailrace-prod")
    monkeypatch.setattr(Context.__new__, "__defaults__", (str(UUID(int=1 << 127)),))
    watched = Watched(Answers(204), capsys)
    now = [1_795_000_000.0]
    monkeypatch.setattr("tailrace.aws.runtime.observability.time.time", lambda: now[0])
    await appended(watched)
    sizes = []
    for waiting in (0, 9):
        for _ in range(waiting):
            assert await appended(watched) == []
        now[0] += LINE_SECONDS
        (line,) = await appended(watched)
        sizes.append(len(json.dumps(line, separators=(",", ":"))) + 1)
    assert sizes[0] <= LINE_BYTES
    assert sizes[1] - sizes[0] <= 9 * VALUE_BYTES


async def test_calls_to_dynamodb_are_counted_with_their_units(watched: Watched) -> None:
    watched.observer.record_call(Call("PutItem", "ok", 1, 0.01, 0, 1.0))
    watched.observer.record_call(Call("Query", "throttled", 3, 0.01, 0.5, 0))
    metrics, _ = await watched.ask("POST")
    assert metrics["dynamodb_calls_total"] == [2.0]
    assert metrics["dynamodb_retries_total"] == [2.0]
    assert metrics["dynamodb_read_units"] == [0.5]
    assert metrics["dynamodb_write_units"] == [1.0]
    assert metrics["dynamodb_throttled_total"] == [1.0]


async def test_a_request_without_an_id_gets_the_one_in_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = Answers(200)
    metrics, _ = await Watched(app, capsys).ask("GET")
    assert app.headers == [(b"x-request-id", b"request-1")]
    assert "client_request_id" not in metrics


@pytest.mark.parametrize(("name", "told"), [(b"checkout-7", "checkout-7"), (b"a b", None)])
async def test_the_clients_own_name_is_logged_beside_that_of_lambda(
    capsys: pytest.CaptureFixture[str], name: bytes, told: str | None
) -> None:
    app = Answers(200)
    metrics, _ = await Watched(app, capsys).ask("GET", name=name)
    assert app.headers == [(b"x-request-id", name)]
    assert metrics["request_id"] == "request-1"
    assert metrics.get("client_request_id") == told


async def test_the_line_names_the_request_and_the_stream_but_not_as_dimensions(
    watched: Watched,
) -> None:
    metrics, (line,) = await watched.ask("GET")
    assert metrics["request_id"] == line["request_id"] == "request-1"
    assert metrics["stream"] == line["stream"] == "chat/room"
    assert line["message"] == "at work"
    (emf,) = metrics["_aws"]["CloudWatchMetrics"]
    assert emf["Namespace"] == "Tailrace"
    assert [sorted(each) for each in emf["Dimensions"]] == [["function", "service"]]
    assert metrics["function"] == "http"


async def test_a_request_leaves_nothing_in_the_lines_of_the_next(watched: Watched) -> None:
    await watched.ask("GET")
    _, (line,) = await watched.ask("GET", "/health")
    assert "stream" not in line


TRACED = """
import asyncio
from tests.unit.aws.test_observability import Answers, Context
from tailrace.aws.runtime.observability import ObservedApp, Observer
from tailrace.settings import Settings

async def main():
    async def send(message): pass
    scope = {"type": "http", "method": "GET", "path": "/ds/room", "query_string": b""}
    app = ObservedApp(Answers(200), Observer("http", Settings()), {})
    await app({**scope, "aws.context": Context()}, None, send)

asyncio.run(main())
"""


@pytest.mark.parametrize("sampled", [True, False])
def test_a_request_is_a_part_of_its_trace_when_that_is_sampled(sampled: bool) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as daemon:
        daemon.bind(("127.0.0.1", 0))
        daemon.setblocking(False)
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "LAMBDA_TASK_ROOT": "/var/task",
            "AWS_XRAY_DAEMON_ADDRESS": f"127.0.0.1:{daemon.getsockname()[1]}",
            "_X_AMZN_TRACE_ID": f"Root=1-{'a' * 8}-{'b' * 24};Parent={'c' * 16};"
            f"Sampled={int(sampled)}",
        }
        subprocess.run([sys.executable, "-c", TRACED], env=env, check=True, capture_output=True)
        if not sampled:
            with pytest.raises(BlockingIOError):
                daemon.recv(65536)
            return
        _, part = daemon.recv(65536).splitlines()
    traced = json.loads(part)
    assert traced["name"] == "## GET"
    assert traced["parent_id"] == "c" * 16
    assert traced["annotations"] == {"request_id": "request-1", "stream": "room"}


def test_every_metric_is_documented_with_its_sentence() -> None:
    documented = DOCS.read_text()
    for name, (unit, sentence) in METRICS.items():
        assert f"| `{name}` | {unit} | {sentence} |" in documented


def test_every_outcome_of_a_call_is_a_metric() -> None:
    for outcome in OUTCOMES.values():
        assert f"dynamodb_{outcome.replace('-', '_')}_total" in METRICS
