"""The programs of docs/subscriptions.md and examples/agent, run as a reader would."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from devtools.node import find_node
from devtools.processes import ROOT
from devtools.server import Server

SECONDS = 60.0
"""How long to wait for what must happen."""

PROGRAMS = {
    match[2]: match[0]
    for match in re.finditer(
        r"(?<=\n)(#|//) ([a-z]+\.[a-z]+)\n.*?(?=\n```)",
        (ROOT / "docs" / "subscriptions.md").read_text(),
        re.DOTALL,
    )
}
AGENT = ROOT / "examples" / "agent" / "agent.py"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(own_server: Server, tmp_path: Path) -> Iterator[Start]:
    """Starts programs, which are ended in the end."""
    started: list[subprocess.Popen[str]] = []

    def begin(*command: str | Path, **env: str) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            command,
            env={**os.environ, "TAILRACE_URL": own_server.url, "PYTHONUNBUFFERED": "1", **env},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(program)
        return program

    yield begin
    for program in started:
        program.send_signal(signal.SIGTERM)
        program.communicate(timeout=SECONDS)


@pytest.fixture
def http(own_server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{own_server.url}/v1/stream", trust_env=False) as client:
        yield client


def saved(place: Path, name: str) -> Path:
    file = place / name
    file.write_text(PROGRAMS[name])
    return file


def command(place: Path, name: str) -> list[str | Path]:
    kind: dict[str, str] = {".py": sys.executable, ".mjs": find_node(), ".sh": "bash"}
    file = saved(place, name)
    return [kind[file.suffix], file]


def append(http: httpx.Client, path: str, *messages: object) -> None:
    headers = {"Content-Type": "application/json"}
    http.put(f"/{path}", headers=headers).raise_for_status()
    body = json.dumps(messages)
    http.post(f"/{path}", headers=headers, content=body).raise_for_status()


def subscribe(http: httpx.Client, name: str, **fields: Any) -> dict[str, Any]:
    made = http.put(f"/__ds/subscriptions/{name}", json={"pattern": "inbox/**", **fields})
    made.raise_for_status()
    value: dict[str, Any] = made.json()
    return value


def subscribe_jobs(http: httpx.Client) -> None:
    http.put("/wakes/jobs", headers={"Content-Type": "application/json"}).raise_for_status()
    subscribe(http, "jobs", type="pull-wake", wake_stream="wakes/jobs")


def until(condition: Callable[[], Any]) -> Any:
    limit = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < limit, "it does not happen"
        time.sleep(0.05)
    return found


def test_there_are_programs() -> None:
    assert set(PROGRAMS) == {
        "worker.py", "worker.mjs", "worker.sh", "receiver.py", "receiver.mjs",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["worker.py", "worker.mjs"])
def test_workers(http: httpx.Client, start: Start, tmp_path: Path, name: str) -> None:
    subscribe_jobs(http)
    append(http, "inbox/ada", 1, 2)
    worker = start(*command(tmp_path, name))
    assert worker.stdout is not None
    assert worker.stdout.readline().replace(" ", "") == "inbox/ada[1,2]\n"
    append(http, "inbox/bob", 3)
    assert worker.stdout.readline().replace(" ", "") == "inbox/bob[3]\n"
    append(http, "inbox/ada", 4)
    assert worker.stdout.readline().replace(" ", "") == "inbox/ada[4]\n"


def test_the_worker_of_curl(http: httpx.Client, start: Start, tmp_path: Path) -> None:
    subscribe_jobs(http)
    append(http, "inbox/ada", 1, 2)
    append(http, "inbox/bob", 3)
    worker = start(*command(tmp_path, "worker.sh"))
    assert worker.stdout is not None
    printed = worker.stdout.read()
    assert worker.wait(SECONDS) == 0
    assert re.findall(r"\[.*?\]", printed.replace(" ", "")) == ["[1,2]", "[3]"]
    assert printed.rstrip().endswith('{"ok":true,"next_wake":false}')
    shown = http.get("/__ds/subscriptions/jobs").json()
    assert "-1" not in [stream["acked_offset"] for stream in shown["streams"]]
    # There is nothing any more.
    assert start(*command(tmp_path, "worker.sh")).wait(SECONDS) == 1


@pytest.mark.parametrize("name", ["receiver.py", "receiver.mjs"])
def test_receivers_verify_signatures(
    http: httpx.Client, start: Start, tmp_path: Path, name: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    jwks = f"{http.base_url}__ds/jwks.json"
    receiver = start(*command(tmp_path, name), PORT=str(port), JWKS_URL=jwks)
    url = f"http://127.0.0.1:{port}/hook"
    forged = {
        "no signature": "",
        "garbage": "x",
        "another key": f"t={int(time.time())},kid=ds_x,ed25519={'A' * 86}",
        "too old": f"t=1,kid=ds_x,ed25519={'A' * 86}",
    }

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(listens)
    for header in forged.values():
        refused = httpx.post(url, json={}, headers={"Webhook-Signature": header}, trust_env=False)
        assert refused.status_code == 401
    append(http, "inbox/ada", 0)
    made = subscribe(http, "alerts", type="webhook", webhook={"url": url})
    assert made["webhook"]["signing"]["jwks_url"] == jwks
    append(http, "inbox/ada", 1)
    assert receiver.stdout is not None
    path, acked, tail = receiver.stdout.readline().split()
    assert (path, acked) == ("inbox/ada", made["streams"][0]["acked_offset"])

    def acknowledged() -> bool:
        shown = http.get("/__ds/subscriptions/alerts").json()
        return bool(shown["streams"][0]["acked_offset"] == tail)

    until(acknowledged)


def outbox(http: httpx.Client, name: str) -> list[dict[str, Any]]:
    answer = http.get(f"/agents/{name}/outbox")
    return [] if answer.status_code == 404 else list(answer.json())


def test_the_agent_answers_each_message_once(http: httpx.Client, start: Start) -> None:
    agent = start(sys.executable, AGENT)
    until(lambda: http.get("/__ds/subscriptions/agents").is_success)
    for number in range(3):
        append(http, "agents/ada/inbox", {"from": "bob", "text": str(number)})
        append(http, "agents/eve/inbox", {"from": "bob", "text": str(number)})
    for name in ("ada", "eve"):
        until(lambda: len(outbox(http, name)) == 3)  # noqa: B023 - called at once
        assert [each["text"][-1] for each in outbox(http, name)] == ["0", "1", "2"]
        assert {each["to"] for each in outbox(http, name)} == {"bob"}
    assert agent.poll() is None


def test_the_agent_sleeps_and_is_killed_while_it_thinks(
    http: httpx.Client, start: Start, tmp_path: Path
) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go_on"
    model = f"touch {begun}; while test ! -e {go_on}; do sleep 0.1; done; jq -r last.text"
    first = start(sys.executable, AGENT, AGENT_MODEL=model)
    until(lambda: http.get("/__ds/subscriptions/agents").is_success)
    append(http, "agents/ada/inbox", {"from": "bob", "text": "hello"})
    until(begun.exists)
    first.send_signal(signal.SIGTERM)
    first.wait(SECONDS)
    go_on.touch()
    assert outbox(http, "ada") == []
    start(sys.executable, AGENT, AGENT_MODEL=model)
    (answer,) = until(lambda: outbox(http, "ada"))
    assert (answer["to"], answer["text"]) == ("bob", "hello")


def test_a_repeated_run_of_the_agent_answers_nothing_again(
    http: httpx.Client, start: Start
) -> None:
    append(http, "agents/ada/inbox", {"from": "bob", "text": "hello"})
    end = http.head("/agents/ada/inbox").headers["Stream-Next-Offset"]
    wake = {"TAILRACE_STREAM": "agents/ada/inbox", "TAILRACE_NEXT_OFFSET": end}
    runs = [start(sys.executable, AGENT, "--wake", **wake) for _ in range(4)]
    assert [run.wait(SECONDS) for run in runs] == [0] * 4
    assert len(outbox(http, "ada")) == 1


def test_the_agent_is_short() -> None:
    assert len(AGENT.read_text().splitlines()) < 150
