"""`tailrace work` against the real server: every message at least once, one worker at a time."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from devtools.server import Server
from tailrace.cli import main

SECONDS = 60.0
"""How long to wait for what must happen."""

Start = Callable[..., "subprocess.Popen[str]"]


class Jobs:
    """A subscription of the test's own, and a command that notes what it gets."""

    def __init__(self, server: Server, place: Path) -> None:
        self.server = server
        self.name = f"jobs-{uuid.uuid4().hex}"
        self.place = place
        self.notes = place / "notes"

    def stream(self, name: str) -> str:
        return f"{self.name}/{name}"

    def subscribe(self, lease: str = "30") -> None:
        done(
            self.run(
                "subscribe", self.name, "--pattern", f"{self.name}/**",
                "--wake-stream", f"wakes-{self.name}", "--lease", lease,
            )
        )  # fmt: skip

    def run(self, *args: str) -> Result:
        return CliRunner(env={"TAILRACE_URL": self.server.url}).invoke(
            main, args, prog_name="tailrace", catch_exceptions=False
        )

    def append(self, name: str, *messages: object) -> None:
        url = f"{self.server.url}/v1/stream/{self.stream(name)}"
        headers = {"Content-Type": "application/json"}
        httpx.put(url, headers=headers).raise_for_status()
        body = json.dumps(messages, separators=(",", ":"))
        httpx.post(url, headers=headers, content=body).raise_for_status()

    def script(self, text: str = "") -> str:
        """A command that notes its environment and input, after it has run `text`."""
        path = self.place / f"handler-{uuid.uuid4().hex}.sh"
        note = (
            'echo "$TAILRACE_STREAM $TAILRACE_OFFSET $TAILRACE_NEXT_OFFSET'
            f' $TAILRACE_GENERATION $(echo $(cat))" >> {self.notes}\n'
        )
        path.write_text(f"#!/bin/sh\n{text}\n{note}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def noted(self) -> list[list[str]]:
        """Notes of the commands: stream, offset, next offset, generation, messages."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        return [
            [line.split()[0].removeprefix(f"{self.name}/"), *line.split()[1:]] for line in lines
        ]

    def messages(self) -> list[str]:
        return [message for note in self.noted() for message in note[4:]]

    def claim(self) -> httpx.Response:
        url = f"{self.server.url}/v1/stream/__ds/subscriptions/{self.name}/claim"
        return httpx.post(url, json={"worker": "the test"})


def done(result: Result) -> Result:
    assert result.exit_code == 0, result.stderr
    return result


def until(condition: Callable[[], Any]) -> None:
    limit = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < limit, "it does not happen"
        time.sleep(0.05)


@pytest.fixture
def jobs(server: Server, tmp_path: Path) -> Jobs:
    return Jobs(server, tmp_path)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts workers, which are killed in the end."""
    started: list[subprocess.Popen[str]] = []

    def begin(jobs: Jobs, *args: str) -> subprocess.Popen[str]:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tailrace", "work", jobs.name, *args],
            env={**os.environ, "TAILRACE_URL": jobs.server.url, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(worker)
        return worker

    yield begin
    for worker in started:
        worker.kill()
        worker.wait()
        # Without reading them to their end: a command may outlive a killed worker.
        for pipe in (worker.stdout, worker.stderr):
            assert pipe is not None
            pipe.close()


def wait_until_idle(worker: subprocess.Popen[str]) -> None:
    assert worker.stderr is not None
    for line in worker.stderr:
        if line.startswith("waiting for news"):
            return
    raise AssertionError(f"the worker ended with {worker.wait()}")


def test_the_command_gets_what_is_pending_once(jobs: Jobs) -> None:
    jobs.append("old", 0)
    jobs.subscribe()
    jobs.append("a", {"n": 1}, {"n": 2})
    jobs.append("b c", 3)
    jobs.append("old", 4)
    result = done(jobs.run("work", jobs.name, "--once", "--exec", jobs.script()))
    assert "claimed generation 1: 3 streams" in result.stderr
    noted = {note[0]: note for note in jobs.noted()}
    assert noted["a"][1] == "-1"
    assert noted["a"][3:] == ["1", '{"n":1}', '{"n":2}']
    assert noted["old"][3:] == ["1", "4"]
    assert len(jobs.noted()) == 3
    done(jobs.run("work", jobs.name, "--once", "--exec", jobs.script()))
    assert len(jobs.noted()) == 3
    jobs.append("a", 5)
    done(jobs.run("work", jobs.name, "--once", "--exec", jobs.script()))
    (later,) = jobs.noted()[3:]
    assert later == ["a", noted["a"][2], later[2], "2", "5"]


def test_bytes_are_given_unchanged(jobs: Jobs, tmp_path: Path) -> None:
    jobs.subscribe()
    data = os.urandom(3 << 20)
    (tmp_path / "data").write_bytes(data)
    done(jobs.run("create", jobs.stream("a")))
    done(jobs.run("append", jobs.stream("a"), str(tmp_path / "data")))
    copy = tmp_path / "copy"
    script = jobs.script(f"cat >> {copy}; exit")
    result = done(jobs.run("work", jobs.name, "--once", "--json", "--exec", script))
    assert copy.read_bytes() == data
    batches = [json.loads(line) for line in result.stdout.splitlines()]
    assert sum(batch["bytes"] for batch in batches) == len(data)
    assert all(batch["messages"] is None for batch in batches)


def test_a_command_that_reads_nothing_does_not_block(jobs: Jobs) -> None:
    jobs.subscribe()
    jobs.append("a", "x" * 500_000)
    done(jobs.run("work", jobs.name, "--once", "--exec", "true"))


def test_a_waiting_worker_is_woken(jobs: Jobs, start: Start) -> None:
    jobs.subscribe()
    worker = start(jobs, "--exec", jobs.script(), "--worker", "ada")
    wait_until_idle(worker)
    for number in range(5):
        jobs.append("a", number)
        until(lambda: len(jobs.messages()) > number)  # noqa: B023 - called at once
    assert jobs.messages() == list("01234")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(SECONDS) == 0


def test_ctrl_c_ends_with_130(jobs: Jobs, start: Start) -> None:
    jobs.subscribe()
    worker = start(jobs, "--exec", jobs.script())
    wait_until_idle(worker)
    worker.send_signal(signal.SIGINT)
    assert worker.wait(SECONDS) == 130


def test_the_lease_is_extended_while_the_command_runs(jobs: Jobs) -> None:
    jobs.subscribe(lease="1")
    jobs.append("a", 1)
    done(jobs.run("work", jobs.name, "--once", "--exec", jobs.script("sleep 4")))
    (noted,) = jobs.noted()
    assert noted[3:] == ["1", "1"]
    assert jobs.claim().json()["error"]["code"] == "NO_PENDING_WORK"


def test_a_failed_command_is_repeated(jobs: Jobs, tmp_path: Path) -> None:
    jobs.subscribe()
    jobs.append("a", 1)
    flag = tmp_path / "flag"
    script = jobs.script(f"test -e {flag} || {{ touch {flag}; exit 7; }}")
    result = done(jobs.run("work", jobs.name, "--once", "--json", "--exec", script))
    assert json.loads(result.stdout)["attempts"] == 2
    assert len(jobs.noted()) == 1


def test_a_stream_whose_messages_fail_does_not_hold_up_others(jobs: Jobs) -> None:
    jobs.subscribe()
    jobs.append("bad", 1)
    jobs.append("good", 2)
    script = jobs.script('case "$TAILRACE_STREAM" in */bad) exit 7;; esac')
    result = jobs.run("work", jobs.name, "--once", "--retries", "0", "--exec", script)
    assert result.exit_code == 1
    assert "failed with exit code 7" in result.stderr
    assert "stay pending" in result.stderr
    assert [note[0] for note in jobs.noted()] == ["good"]
    claim = jobs.claim().json()
    assert [stream["path"] for stream in claim["streams"]] == [jobs.stream("bad")]


def test_a_command_that_takes_too_long_is_stopped(jobs: Jobs) -> None:
    jobs.subscribe()
    jobs.append("a", 1)
    result = jobs.run(
        "work", jobs.name, "--once", "--retries", "0", "--timeout", "1", "--exec",
        jobs.script("sleep 20"),
    )  # fmt: skip
    assert result.exit_code == 1
    assert "took longer than 1 s" in result.stderr
    assert jobs.noted() == []


def test_sigterm_stops_the_command_and_releases_the_wake(jobs: Jobs, start: Start) -> None:
    jobs.subscribe(lease="600")
    jobs.append("a", 1)
    begun = jobs.place / "begun"
    worker = start(jobs, "--exec", jobs.script(f"touch {begun}; sleep 20 & wait"))
    until(begun.exists)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(SECONDS) == 0
    assert jobs.noted() == []
    claim = jobs.claim()
    assert claim.status_code == 200, "the wake was not released"
    assert claim.json()["streams"][0]["acked_offset"] == "-1"


def test_a_command_that_ends_well_after_sigterm_is_acknowledged(jobs: Jobs, start: Start) -> None:
    jobs.subscribe(lease="600")
    jobs.append("a", 1)
    begun = jobs.place / "begun"
    script = jobs.script(f"trap 'echo $(cat) >> {jobs.place}/done; exit 0' TERM\n"
                         f"touch {begun}; sleep 20 & wait")  # fmt: skip
    worker = start(jobs, "--exec", script)
    until(begun.exists)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(SECONDS) == 0
    assert (jobs.place / "done").read_text() == "1\n"
    assert jobs.claim().json()["error"]["code"] == "NO_PENDING_WORK"


def test_another_worker_takes_over_from_a_killed_one(jobs: Jobs, start: Start) -> None:
    jobs.subscribe(lease="1")
    begun = jobs.place / "begun"
    first = start(jobs, "--exec", jobs.script(f"touch {begun}; sleep 20"))
    wait_until_idle(first)
    jobs.append("a", 1)
    until(begun.exists)
    second = start(jobs, "--exec", jobs.script())
    wait_until_idle(second)
    first.kill()
    until(lambda: jobs.noted() != [])
    (noted,) = jobs.noted()
    assert int(noted[3]) > 1
    assert noted[4:] == ["1"]


def test_a_worker_that_lost_its_lease_stops_its_command(jobs: Jobs, start: Start) -> None:
    jobs.subscribe(lease="1")
    jobs.append("a", 1)
    begun = jobs.place / "begun"
    frozen = start(jobs, "--exec", jobs.script(f"touch {begun}; sleep 20"))
    until(begun.exists)
    frozen.send_signal(signal.SIGSTOP)
    # The wake is given to another one, as soon as the lease is over.
    until(lambda: jobs.claim().status_code == 200)
    frozen.send_signal(signal.SIGCONT)
    assert frozen.stderr is not None
    for line in frozen.stderr:
        if line.startswith("lost generation 1"):
            break
    assert jobs.noted() == []


def test_workers_share_the_work_one_at_a_time(jobs: Jobs, start: Start) -> None:
    jobs.subscribe(lease="2")
    lock = jobs.place / "lock"
    script = jobs.script(f"mkdir {lock} || echo two at a time >> {jobs.notes}; rmdir {lock}")
    workers = [start(jobs, "--exec", script) for _ in range(3)]
    for worker in workers:
        wait_until_idle(worker)
    for number in range(60):
        jobs.append("abc"[number % 3], number)
        if number == 30:
            workers[0].kill()
    until(lambda: {str(number) for number in range(60)} <= set(jobs.messages()))
    for name in "abc":
        seen = [int(m) for note in jobs.noted() if note[0] == name for m in note[4:]]
        # A killed worker may not have acknowledged its batch: then it comes again.
        firsts = list(dict.fromkeys(seen))
        assert firsts == sorted(firsts)
    assert "two at a time" not in jobs.notes.read_text()


def test_a_worker_goes_on_after_the_server_was_down(
    own_server: Server, tmp_path: Path, start: Start
) -> None:
    jobs = Jobs(own_server, tmp_path)
    jobs.subscribe()
    worker = start(jobs, "--exec", jobs.script())
    wait_until_idle(worker)
    jobs.append("a", 1)
    until(lambda: jobs.messages() == ["1"])
    own_server.stop()
    own_server.start()
    jobs.append("a", 2)
    until(lambda: jobs.messages() == ["1", "2"])


def test_a_worker_ends_when_its_subscription_is_deleted(jobs: Jobs, start: Start) -> None:
    jobs.subscribe(lease="600")
    begun, go_on = jobs.place / "begun", jobs.place / "go_on"
    worker = start(
        jobs, "--exec", jobs.script(f"touch {begun}; while test ! -e {go_on}; do sleep 0.1; done")
    )
    jobs.append("a", 1)
    until(begun.exists)
    done(jobs.run("subscriptions", "delete", jobs.name))
    go_on.touch()
    assert worker.wait(SECONDS) == 3


def test_a_deleted_stream_is_skipped(jobs: Jobs) -> None:
    jobs.subscribe()
    jobs.append("a", 1)
    jobs.append("b", 2)
    done(jobs.run("rm", jobs.stream("a")))
    done(jobs.run("work", jobs.name, "--once", "--exec", jobs.script()))
    assert jobs.messages() == ["2"]


def test_a_subscription_that_does_not_exist(jobs: Jobs) -> None:
    result = jobs.run("work", jobs.name, "--exec", "true")
    assert result.exit_code == 3
    assert "no subscription" in result.stderr


def test_a_webhook_has_no_workers(jobs: Jobs) -> None:
    done(
        jobs.run(
            "subscribe", jobs.name, "--stream", jobs.stream("a"),
            "--webhook", "http://127.0.0.1:9/hook",
        )
    )  # fmt: skip
    result = jobs.run("work", jobs.name, "--exec", "true")
    assert result.exit_code == 2
    assert "it needs no worker" in result.stderr


def test_subscriptions_are_shown_listed_and_deleted(jobs: Jobs) -> None:
    jobs.append("a b", 1)
    jobs.subscribe()
    assert jobs.run("subscribe", jobs.name, "--pattern", f"{jobs.name}/**",
                    "--wake-stream", f"wakes-{jobs.name}").stdout == (
        f"{jobs.name} already exists with the same settings\n")  # fmt: skip
    other = jobs.run("subscribe", jobs.name, "--pattern", "x", "--wake-stream", "w")
    assert other.exit_code == 4
    shown = done(jobs.run("subscriptions", "show", jobs.name)).stdout
    assert f"pattern       {jobs.name}/**" in shown
    assert jobs.stream("a b") in shown
    listed = json.loads(done(jobs.run("subscriptions", "show", jobs.name, "--json")).stdout)
    assert listed["streams"][0]["link_type"] == "glob"
    names = [
        json.loads(line)["id"]
        for line in done(jobs.run("subscriptions", "list", "--json")).stdout.splitlines()
    ]
    assert jobs.name in names
    assert jobs.name in done(jobs.run("subscriptions", "list")).stdout
    done(jobs.run("subscriptions", "delete", jobs.name))
    assert jobs.run("subscriptions", "delete", jobs.name).exit_code == 3
    assert jobs.run("subscriptions", "show", jobs.name).exit_code == 3


def test_a_wake_stream_that_is_not_json(jobs: Jobs) -> None:
    done(jobs.run("create", jobs.stream("w"), "-t", "text/plain"))
    result = jobs.run("subscribe", jobs.name, "--pattern", "x/*", "--wake-stream", jobs.stream("w"))
    assert result.exit_code == 4
    assert "a stream of text/plain, not of JSON" in result.stderr


def test_a_rejected_webhook(jobs: Jobs) -> None:
    result = jobs.run(
        "subscribe", jobs.name, "--pattern", "x/*", "--webhook", "http://10.0.0.1/hook"
    )
    assert result.exit_code == 2
    assert "must use https" in result.stderr
