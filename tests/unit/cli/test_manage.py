from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run, Wire


def test_create_sends_its_options(wire: Wire, run: Run, tmp_path: Path) -> None:
    (tmp_path / "first").write_bytes(b"[1]")
    wire.will(201, Content_Type="application/json", Stream_Next_Offset="1")
    result = run(
        "create", "a/b", "-t", "application/json", "--ttl", "2h", "--closed",
        "--body", str(tmp_path / "first"),
    )  # fmt: skip
    assert result.stdout == "created a/b (application/json)\n"
    (request,) = wire.requests
    assert (request.method, request.path, request.body) == ("PUT", "/v1/stream/a/b", b"[1]")
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Stream-TTL"] == "7200"
    assert request.headers["Stream-Closed"] == "true"


def test_create_omits_unset_options(wire: Wire, run: Run) -> None:
    wire.will(200, Content_Type="application/octet-stream")
    result = run("create", "s")
    assert result.stdout == "s already exists with the same settings\n"
    names = {name.lower() for name in wire.requests[0].headers}
    assert not {"content-type", "stream-ttl", "stream-expires-at", "stream-closed"} & names


def test_create_as_json(wire: Wire, run: Run) -> None:
    wire.will(201, Content_Type="text/plain", Stream_Next_Offset="0")
    assert json.loads(run("create", "s", "--json").stdout) == {
        "created": True,
        "stream": "s",
        "url": f"{wire.url}/v1/stream/s",
        "content_type": "text/plain",
        "next_offset": "0",
        "closed": False,
        "ttl": None,
        "expires_at": None,
    }


def test_name_that_is_not_utf_8_is_shown_escaped(wire: Wire, run: Run) -> None:
    wire.will(204).will(204)
    assert run("rm", "\udcff").stdout == "deleted \\udcff\n"
    assert json.loads(run("rm", "\udcff", "--json").stdout)["stream"] == "\udcff"
    assert wire.targets == [("DELETE", "/v1/stream/%FF")] * 2


def test_stream_with_other_settings_is_a_conflict_with_a_fix(wire: Wire, run: Run) -> None:
    wire.will(409, b"it differs")
    result = run("create", "s")
    assert result.exit_code == 4
    assert result.stderr == (
        "tailrace: cannot create 's': it differs; compare with 'tailrace info s'\n"
    )


def test_ttl_and_expires_at_exclude_each_other(wire: Wire, run: Run) -> None:
    assert run("create", "s", "--ttl", "1", "--expires-at", "2030-01-01T00:00:00Z").exit_code == 2
    assert wire.requests == []


def test_info_shows_the_metadata(wire: Wire, run: Run) -> None:
    written = "2030-01-01T00:00:00Z"
    wire.will(
        200,
        Content_Type="text/plain",
        Stream_Earliest_Offset="3",
        Stream_Next_Offset="7",
        Stream_Last_Written_At=written,
        Stream_TTL="60",
    )
    assert run("info", "s").stdout == (
        "stream           s\n"
        f"url              {wire.url}/v1/stream/s\n"
        "content type     text/plain\n"
        "earliest offset  3\n"
        "next offset      7\n"
        f"last written     {written}\n"
        "state            open\n"
        "expires          after 60 s without use\n"
    )


def test_info_as_json(wire: Wire, run: Run) -> None:
    wire.will(200, Content_Type="text/plain", Stream_Next_Offset="7", Stream_Closed="true")
    output = json.loads(run("info", "s", "--json").stdout)
    assert (output["next_offset"], output["closed"], output["ttl"]) == ("7", True, None)
    assert output["last_written_at"] is None


def test_close_sends_no_body(wire: Wire, run: Run) -> None:
    wire.will(204, Stream_Next_Offset="7", Stream_Closed="true")
    assert run("close", "s").stdout == "closed s at 7\n"
    assert wire.requests[0].headers["Stream-Closed"] == "true"
    assert wire.requests[0].body == b""


def test_rm(wire: Wire, run: Run) -> None:
    wire.will(204).will(204)
    assert run("rm", "s").stdout == "deleted s\n"
    assert json.loads(run("rm", "s", "--json").stdout)["deleted"] is True
    assert wire.targets == [("DELETE", "/v1/stream/s")] * 2


def test_fork_names_its_source_by_encoded_path(wire: Wire, run: Run) -> None:
    wire.will(201, Content_Type="text/plain")
    assert run("fork", "a b", "c", "--at", "3_4", "--sub-offset", "2").exit_code == 0
    headers = wire.requests[0].headers
    assert wire.targets == [("PUT", "/v1/stream/c")]
    assert headers["Stream-Forked-From"] == "/v1/stream/a%20b"
    assert (headers["Stream-Fork-Offset"], headers["Stream-Fork-Sub-Offset"]) == ("3_4", "2")


def test_missing_source_is_reported(wire: Wire, run: Run) -> None:
    wire.will(404)
    result = run("fork", "from", "to")
    assert result.exit_code == 3
    assert "no stream at 'from'" in result.stderr


def test_fork_on_another_server_is_refused(wire: Wire, run: Run) -> None:
    assert run("fork", "http://elsewhere/v1/stream/a", "b").exit_code == 2
    assert wire.requests == []


def listed(path: str, **other: Any) -> dict[str, Any]:
    return {
        "path": path, "content_type": "text/plain", "next_offset": "0", "closed": False,
        "created_at": "2030-01-01T00:00:00Z", "ttl": None, "expires_at": None, **other,
    }  # fmt: skip


def page(*streams: dict[str, Any], following: str | None = None) -> bytes:
    return json.dumps({"streams": streams, "next": following}).encode()


def test_ls_follows_the_pages_into_one_table(wire: Wire, run: Run) -> None:
    wire.will(200, page(listed("a/1", ttl=60), listed("a/%20x", closed=True), following="a/2"))
    wire.will(200, page(listed("a/three", expires_at="2031-01-01T00:00:00Z")))
    assert run("ls", "/a/").stdout == (
        "STREAM   TYPE        NEXT OFFSET  STATE   CREATED               EXPIRES\n"
        "a/1      text/plain  0            open    2030-01-01T00:00:00Z  after 60 s without use\n"
        "a/ x     text/plain  0            closed  2030-01-01T00:00:00Z  never\n"
        "a/three  text/plain  0            open    2030-01-01T00:00:00Z  2031-01-01T00:00:00Z\n"
    )
    assert [request.path for request in wire.requests] == [
        "/v1/streams?limit=1000&prefix=a%2F",
        "/v1/streams?after=a%2F2&limit=1000&prefix=a%2F",
    ]


@pytest.mark.parametrize(
    ("options", "order"),
    [
        ([], "abc"),
        (["-r"], "cba"),
        (["--sort", "type"], "bac"),
        (["--sort", "state"], "acb"),
        (["--sort", "created"], "cab"),
        (["--sort", "expires", "--reverse"], "cba"),
    ],
)
def test_ls_sorts(wire: Wire, run: Run, options: list[str], order: str) -> None:
    streams = [
        listed("a", created_at="2030-01-02T00:00:00Z", ttl=60),
        listed("b", created_at="2030-01-03T00:00:00Z", content_type="a/b", closed=True, ttl=90),
        listed("c"),
    ]
    wire.will(200, page(*streams))
    lines = run("ls", *options).stdout.splitlines()
    assert "".join(line[0] for line in lines[1:]) == order


@pytest.mark.parametrize("columns", [200, 80, 40, 10])
def test_ls_fits_the_terminal(wire: Wire, columns: int) -> None:
    wire.will(200, page(listed("a-long-name/of-a-stream", ttl=60), listed("b")))
    terminal, stdout = pty.openpty()
    fcntl.ioctl(stdout, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "tailrace", "--url", wire.url, "ls"]
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(command, stdout=stdout, env=env):
        os.close(stdout)
        shown = b""
        with suppress(OSError):  # The end of a terminal.
            while piece := os.read(terminal, 4096):
                shown += piece
    os.close(terminal)
    lines = shown.decode().splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= columns
    assert ("CREATED" in lines[0]) == (columns >= 80)
    assert ("NEXT OFFSET" in lines[0]) == (columns == 200)
    assert lines[1].startswith("a-long-n" if columns > 10 else "a")


def test_ls_as_json_is_a_line_per_stream(wire: Wire, run: Run) -> None:
    wire.will(200, page(listed("a%20b"), listed("c")))
    lines = run("ls", "--json").stdout.splitlines()
    base = f"{wire.url}/v1/stream"
    assert [json.loads(line) for line in lines] == [
        {"stream": "a b", "url": f"{base}/a%20b", **listed("a%20b")},
        {"stream": "c", "url": f"{base}/c", **listed("c")},
    ]


def test_ls_encodes_the_prefix_as_paths_are_listed(wire: Wire, run: Run) -> None:
    wire.will(200, page())
    run("ls", "my room/ü:")
    assert wire.targets == [("GET", "/v1/streams?limit=1000&prefix=my%2520room%2F%25C3%25BC%3A")]


def test_ls_of_nothing_prints_nothing_to_stdout(wire: Wire, run: Run) -> None:
    wire.will(200, page())
    result = run("ls", "x")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "no streams below 'x'\n"


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b"{}", b'{"streams":[]}', b'{"streams":[1],"next":null}']
)
def test_malformed_listing_is_reported(wire: Wire, run: Run, body: bytes) -> None:
    wire.will(200, body)
    result = run("ls")
    assert result.exit_code == 1
    assert "did not return a list of streams" in result.stderr
