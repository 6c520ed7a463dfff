"""The command line against the real server."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from devtools.processes import ROOT
from tailrace.cli import main

if TYPE_CHECKING:
    from devtools.server import Server

Tailrace = Callable[..., Result]

SHELL = """
tailrace() {{
    {python} -m tailrace "$@" <&0 &
    if [ "$1 ${{2-}}" = "tail -f" ]; then sleep 2; kill $!; wait $! || true; else wait $!; fi
}}
"""
"""`tailrace`, but a tail that follows is stopped after two seconds."""


@pytest.fixture
def stream() -> str:
    return f"cli/{uuid.uuid4().hex}"


@pytest.fixture
def tailrace(server: Server) -> Tailrace:
    def run(*args: str, stdin: bytes | None = None) -> Result:
        return CliRunner(env={"TAILRACE_URL": server.url}).invoke(
            main, args, input=stdin, prog_name="tailrace", catch_exceptions=False
        )

    return run


def done(result: Result) -> Result:
    assert result.exit_code == 0, result.stderr
    return result


def follower(server: Server, *args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tailrace", "tail", "-f", *args, "--url", server.url],
        stdout=subprocess.PIPE,
    )


def test_bytes_are_read_as_appended(tailrace: Tailrace, stream: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * (5 << 12)
    (tmp_path / "data").write_bytes(data)
    done(tailrace("create", stream))
    done(tailrace("append", stream, str(tmp_path / "data")))
    assert done(tailrace("read", stream)).stdout_bytes == data


def test_json_lines_are_read_as_appended(tailrace: Tailrace, stream: str) -> None:
    lines = b"".join(b'{"n":%d,"x":1.50}\n' % number for number in range(5000))
    done(tailrace("create", stream, "-t", "application/json"))
    result = done(tailrace("append", stream, "-l", "--batch-lines", "999", "--json", stdin=lines))
    output = json.loads(result.stdout)
    assert (output["appends"], output["messages"]) == (6, 5000)
    assert done(tailrace("read", stream)).stdout_bytes == lines
    assert (
        output["next_offset"]
        == json.loads(tailrace("info", stream, "--json").stdout)["next_offset"]
    )


def test_read_continues_where_the_last_one_ended(tailrace: Tailrace, stream: str) -> None:
    done(tailrace("create", stream, "-t", "text/plain"))
    done(tailrace("append", stream, "-m", "first"))
    offset = json.loads(tailrace("read", stream, "--json").stdout)["next_offset"]
    done(tailrace("append", stream, "-m", "second"))
    assert tailrace("read", stream, "--offset", offset).stdout == "second"


def test_the_last_lines_and_those_since_a_time(tailrace: Tailrace, stream: str) -> None:
    done(tailrace("create", stream, "-t", "text/plain"))
    lines = [f"line {number:05}" for number in range(3000)]
    done(tailrace("append", stream, "--lines", stdin="\n".join(lines).encode()))
    done(tailrace("close", stream))
    assert tailrace("tail", stream, "-n", "2000").stdout.splitlines() == lines[-2000:]
    assert tailrace("read", stream, "--since", "1h").stdout.splitlines() == lines
    assert tailrace("read", stream, "--since", "2199-01-01T00:00:00Z").stdout == ""


def test_tail_prints_new_data_and_ends_at_the_close(
    tailrace: Tailrace, server: Server, stream: str
) -> None:
    done(tailrace("create", stream, "-t", "application/json"))
    done(tailrace("append", stream, "-m", "1", "-m", "2"))
    with follower(server, stream, "-n", "1") as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline() == b"2\n"
        done(tailrace("append", stream, "-m", "3"))
        assert tail.stdout.readline() == b"3\n"
        done(tailrace("append", stream, "-m", "4", "--close"))
        assert tail.communicate(timeout=120)[0] == b"4\n"
        assert tail.returncode == 0


def test_tail_survives_a_restart(own_server: Server, stream: str) -> None:
    def tailrace(*args: str) -> Result:
        return CliRunner().invoke(main, [*args, "--url", own_server.url])

    done(tailrace("create", stream, "-t", "text/plain"))
    done(tailrace("append", stream, "-m", "before\n"))
    with follower(own_server, stream, "--offset", "-1") as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline() == b"before\n"
        own_server.restart()
        done(tailrace("append", stream, "-m", "after\n", "--close"))
        assert tail.communicate(timeout=120)[0] == b"after\n"
        assert tail.returncode == 0


def test_a_closed_stream_is_a_conflict(tailrace: Tailrace, stream: str) -> None:
    done(tailrace("create", stream))
    done(tailrace("close", stream))
    done(tailrace("close", stream))
    result = tailrace("append", stream, "-m", "x")
    assert result.exit_code == 4
    assert "is closed at" in result.stderr


def test_a_decreasing_sequence_is_a_conflict(tailrace: Tailrace, stream: str) -> None:
    done(tailrace("create", stream))
    done(tailrace("append", stream, "-m", "x", "--seq", "2"))
    assert tailrace("append", stream, "-m", "x", "--seq", "1").exit_code == 4


def test_a_fork_begins_with_its_source(tailrace: Tailrace, stream: str) -> None:
    done(tailrace("create", stream, "-t", "application/json"))
    done(tailrace("append", stream, "-m", "1", "-m", "2"))
    start = "0000000000000000_0000000000000000"
    done(tailrace("fork", stream, f"{stream} fork", "--at", start, "--sub-offset", "1"))
    done(tailrace("append", f"{stream} fork", "-m", "3"))
    assert tailrace("read", f"{stream} fork").stdout == "1\n3\n"
    assert tailrace("fork", f"{stream}/none", f"{stream} other").exit_code == 3


def test_create_again_and_with_other_settings(tailrace: Tailrace, stream: str) -> None:
    done(tailrace("create", stream, "--ttl", "1h"))
    assert "already exists" in done(tailrace("create", stream, "--ttl", "3600")).stdout
    assert tailrace("create", stream).exit_code == 4
    assert "after 3600 s" in tailrace("info", stream).stdout


@pytest.mark.parametrize("command", ["read", "tail", "info", "close", "rm", "append"])
def test_missing_stream_is_exit_3(tailrace: Tailrace, stream: str, command: str) -> None:
    result = tailrace(command, stream, stdin=b"x")
    assert result.exit_code == 3
    assert result.stderr.startswith("tailrace: cannot ")


@pytest.mark.parametrize(
    "args",
    [
        ("create", "--expires-at", "tomorrow"),
        ("read", "--offset", "a/b"),
    ],
)
def test_bad_request_is_exit_2(tailrace: Tailrace, stream: str, args: tuple[str, ...]) -> None:
    tailrace("create", f"{stream}/x")
    command, *options = args
    assert tailrace(command, f"{stream}/x", *options).exit_code == 2


def test_streams_are_listed_by_names_that_locate_them(tailrace: Tailrace, stream: str) -> None:
    names = [f"{stream}/a b", f"{stream}/a%2Fb", f"{stream}/a:b", f"{stream}/ü"]
    for name in names:
        done(tailrace("create", name))
    entries = [
        json.loads(line) for line in tailrace("ls", f"{stream}/", "--json").stdout.splitlines()
    ]
    assert sorted(entry["stream"] for entry in entries) == sorted(names)
    for entry in entries:
        done(tailrace("rm", entry["stream"]))
    assert tailrace("ls", f"{stream}/").stderr == f"no streams below '{stream}/'\n"


def test_the_examples_of_the_page_work(own_server: Server, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    script = [SHELL.format(python=shlex.quote(sys.executable))]
    # Blocks that do not use the running server, or never end.
    ours = (
        "tailrace serve", "tailrace check", "tailrace compact", "tailrace glue", "tailrace secret",
        "tailrace keys", "tailrace work",
    )  # fmt: skip
    script += [block for block in blocks if not block.startswith(ours)]
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(script)],
        cwd=tmp_path,
        env={**os.environ, "TAILRACE_URL": own_server.url},
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    # The epoch of the offset, its first digits, is another one each time.
    assert _without_epoch(ran.stdout.splitlines()[-1]) in _without_epoch(page)


def _without_epoch(text: str) -> str:
    return re.sub("[0-9]{4}([0-9]{12}_[0-9]{16})", r"0000\1", text)
