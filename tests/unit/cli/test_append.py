from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.cli.commands.append import LONG_INPUT

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run, Wire

JSON: dict[str, Any] = {"Content_Type": "application/json; charset=utf-8"}
TEXT: dict[str, Any] = {"Content_Type": "text/plain"}
BYTES: dict[str, Any] = {"Content_Type": "application/octet-stream"}


def bodies(wire: Wire) -> list[bytes]:
    return [request.body for request in wire.requests if request.method == "POST"]


def sent(wire: Wire, header: str) -> list[str | None]:
    return [request.headers.get(header) for request in wire.requests if request.method == "POST"]


def test_message_is_sent_with_the_streams_content_type(wire: Wire, run: Run) -> None:
    wire.will(200, **TEXT).will(200, Stream_Next_Offset="5")
    result = run("append", "s", "-m", "hello")
    assert result.stdout == "appended 1 message (5 bytes) to s, next offset 5\n"
    assert wire.targets == [("HEAD", "/v1/stream/s"), ("POST", "/v1/stream/s")]
    assert bodies(wire) == [b"hello"]
    assert sent(wire, "Content-Type") == ["text/plain"]


def test_json_messages_are_one_array(wire: Wire, run: Run) -> None:
    wire.will(200, **JSON).will(200, Stream_Next_Offset="2")
    result = run("append", "s", "-m", '{"a": 1.0}', "-m", "[1,2]", "--json")
    assert json.loads(result.stdout) == {
        "stream": "s",
        "url": f"{wire.url}/v1/stream/s",
        "appends": 1,
        "messages": 2,
        "bytes": 18,
        "next_offset": "2",
        "closed": False,
    }
    assert bodies(wire) == [b'[{"a": 1.0},[1,2]]']


@pytest.mark.parametrize("text", ["hello", "1,2", "1],[2", "", "NaN", "{"])
def test_message_that_is_not_json_is_not_sent(wire: Wire, run: Run, text: str) -> None:
    wire.will(200, **JSON)
    result = run("append", "s", "-m", "1", "-m", text or "nope")
    assert result.exit_code == 2
    assert result.stderr.startswith("tailrace: --message 2 is not JSON: ")
    assert bodies(wire) == []


def test_messages_as_lines_end_with_newlines(wire: Wire, run: Run) -> None:
    wire.will(200, **TEXT).will(200)
    run("append", "s", "--lines", "-m", "a", "-m", "b")
    assert bodies(wire) == [b"a\nb\n"]


def test_stdin_is_the_default_and_dash_names_it(wire: Wire, run: Run) -> None:
    wire.will(200, **BYTES).will(200).will(200, **BYTES).will(200)
    run("append", "s", stdin=b"\x00\xff\r\n")
    run("append", "s", "-", stdin=b"\x01")
    assert bodies(wire) == [b"\x00\xff\r\n", b"\x01"]


def test_file_of_bytes_is_sent_in_blocks_of_a_mebibyte(
    wire: Wire, run: Run, tmp_path: Path
) -> None:
    data = bytes(range(256)) * 4096 * 2 + b"end"
    (tmp_path / "data").write_bytes(data)
    wire.will(200, **BYTES).will(200).will(200).will(200)
    result = run("append", "s", str(tmp_path / "data"), "--close")
    assert result.exit_code == 0
    assert [len(body) for body in bodies(wire)] == [1 << 20, 1 << 20, 3]
    assert b"".join(bodies(wire)) == data
    assert sent(wire, "Stream-Closed") == [None, None, "true"]


def test_json_input_is_one_request(wire: Wire, run: Run) -> None:
    text = b"[" + b",".join([b'"%b"' % (b"x" * 1000)] * 2000) + b"]"
    wire.will(200, **JSON).will(200)
    run("append", "s", stdin=text)
    assert bodies(wire) == [text]


def test_lines_are_batched_by_count_and_bytes(wire: Wire, run: Run) -> None:
    wire.will(200, **JSON).will(200).will(200)
    run("append", "s", "--lines", "--batch-lines", "2", stdin=b"1\n2\n\n3")
    assert bodies(wire) == [b"[1,2]", b"[3]"]
    wire.requests.clear()
    wire.will(200, **TEXT).will(200).will(200).will(200)
    run("append", "s", "--lines", "--batch-bytes", "5", stdin=b"a\nb\n\nlong line\nc")
    assert bodies(wire) == [b"a\nb\n\n", b"long line\n", b"c\n"]


def test_requests_are_numbered_by_one_producer(wire: Wire, run: Run) -> None:
    wire.will(200, **JSON).will(200).will(200).will(200)
    run("append", "s", "--lines", "--batch-lines", "1", stdin=b"1\n2\n3\n")
    assert len(set(sent(wire, "Producer-Id"))) == 1
    assert sent(wire, "Producer-Epoch") == ["0", "0", "0"]
    assert sent(wire, "Producer-Seq") == ["0", "1", "2"]


def test_a_repeated_request_is_the_same_request(wire: Wire, run: Run, waits: list[float]) -> None:
    wire.will(200, **JSON).will(503).will_drop().will(204).will(200, Stream_Next_Offset="2")
    result = run("append", "s", "--lines", "--batch-lines", "1", stdin=b"1\n2\n")
    assert result.exit_code == 0
    assert sent(wire, "Producer-Seq") == ["0", "0", "0", "1"]
    assert bodies(wire) == [b"[1]", b"[1]", b"[1]", b"[2]"]
    assert len(waits) == 2


def test_retries_can_be_limited(wire: Wire, run: Run, waits: list[float]) -> None:
    wire.will(200, **JSON).will(503)
    result = run("append", "s", "-m", "1", "--retries", "0")
    assert (result.exit_code, len(bodies(wire)), waits) == (1, 1, [])


def test_a_failure_reports_the_amount_appended_before(wire: Wire, run: Run) -> None:
    wire.will(200, **JSON).will(200).will(409, Stream_Closed="true", Stream_Next_Offset="9")
    result = run("append", "s", "--lines", "--batch-lines", "2", stdin=b"1\n2\n3\n")
    assert result.exit_code == 4
    assert result.stderr == (
        "tailrace: cannot append to 's': the stream is closed at 9 and accepts no more appends;"
        " 2 messages (5 bytes) were appended before\n"
    )


def test_line_that_is_not_json_is_reported_after_earlier_lines_are_sent(
    wire: Wire, run: Run
) -> None:
    wire.will(200, **JSON).will(200)
    result = run("append", "s", "--lines", "--close", stdin=b"1\n2\n{oops\n4\n")
    assert result.exit_code == 2
    assert bodies(wire) == [b"[1,2]"]
    assert sent(wire, "Stream-Closed") == [None]
    assert "line 3 is not JSON: {oops; 2 messages (5 bytes) were appended before" in result.stderr


def test_close_is_sent_with_the_last_batch(wire: Wire, run: Run) -> None:
    wire.will(200, **JSON).will(200).will(200)
    result = run("append", "s", "--lines", "--close", "--batch-lines", "2", stdin=b"1\n2\n3\n4\n")
    assert bodies(wire) == [b"[1,2]", b"[3,4]"]
    assert sent(wire, "Stream-Closed") == [None, "true"]
    assert result.stdout.endswith(", closed\n")


def test_close_with_no_lines_closes(wire: Wire, run: Run) -> None:
    wire.will(200, **JSON).will(204)
    assert run("append", "s", "--lines", "--close", stdin=b"\n").exit_code == 0
    assert bodies(wire) == [b""]
    assert sent(wire, "Stream-Closed") == ["true"]


def test_seq_means_one_append(wire: Wire, run: Run) -> None:
    wire.will(200, **JSON).will(200)
    run("append", "s", "--seq", "07", "--lines", "--batch-lines", "1", stdin=b"1\n2\n")
    assert bodies(wire) == [b"[1,2]"]
    assert sent(wire, "Stream-Seq") == ["07"]
    wire.requests.clear()
    wire.will(200, **BYTES).will(200)
    run("append", "s", "--seq", "08", stdin=b"x" * (3 << 20))
    assert len(bodies(wire)) == 1


def test_empty_input_is_an_error_but_no_lines_are_not(wire: Wire, run: Run) -> None:
    wire.will(200, **BYTES).will(200, **BYTES)
    result = run("append", "s", stdin=b"")
    assert (result.exit_code, result.stderr) == (
        2,
        "tailrace: nothing to append: the input is empty\n",
    )
    assert run("append", "s", "--lines", stdin=b"").exit_code == 0
    assert bodies(wire) == []


def test_long_input_shows_its_progress_on_a_terminal(wire: Wire) -> None:
    wire.will(200, **JSON).will(200).will(200)
    terminal, stderr = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "tailrace", "append", "s", "--lines", "--url", wire.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    ) as appending:
        assert appending.stdin is not None
        appending.stdin.write(b"1\n")
        appending.stdin.flush()
        while len(bodies(wire)) < 1:
            time.sleep(0.01)
        time.sleep(LONG_INPUT)
        appending.stdin.write(b"2\n")
    assert appending.returncode == 0
    shown = os.read(terminal, 4096)
    assert b"appending  [" in shown
    assert b"]  2" in shown
    os.close(terminal)
    os.close(stderr)


def test_file_and_message_exclude_each_other(wire: Wire, run: Run) -> None:
    result = run("append", "s", "-", "-m", "x")
    assert (result.exit_code, wire.requests) == (2, [])
