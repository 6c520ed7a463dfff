from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.cli.commands.read import take_first_lines, take_last_lines

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run, Wire

JSON: dict[str, Any] = {"Content_Type": "application/json"}
TEXT: dict[str, Any] = {"Content_Type": "text/plain"}
BYTES: dict[str, Any] = {"Content_Type": "application/octet-stream"}
FULL = Path("/dev/full")
END: dict[str, Any] = {"Stream_Up_To_Date": "true"}
CLOSED: dict[str, Any] = {"Stream_Up_To_Date": "true", "Stream_Closed": "true"}


def queries(wire: Wire) -> list[str]:
    return [request.path.partition("?")[2] for request in wire.requests]


def process(*args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tailrace", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell starts what it runs in the background with Ctrl-C ignored, and that is inherited.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


def test_chunks_are_read_and_printed_byte_for_byte(wire: Wire, run: Run) -> None:
    wire.will(200, b"\x00a\r\n", Stream_Next_Offset="1_4", **BYTES)
    wire.will(200, b"\xff", Stream_Next_Offset="2_5", **END, **BYTES)
    assert run("read", "s").stdout_bytes == b"\x00a\r\n\xff"
    assert queries(wire) == ["offset=-1", "offset=1_4"]


def test_json_is_printed_as_one_message_per_line_with_its_own_text(wire: Wire, run: Run) -> None:
    body = b'[1.50, {"a": "x,\\n]"},12345678901234567890 ,[1,\n 2]]'
    wire.will(200, body, Stream_Next_Offset="1", **JSON).will(200, b"[]", **END, **JSON)
    assert run("read", "s").stdout_bytes == (
        b'1.50\n{"a": "x,\\n]"}\n12345678901234567890\n[1,  2]\n'
    )


def test_raw_json_is_the_arrays_as_served(wire: Wire, run: Run) -> None:
    wire.will(200, b"[1, 2]", Stream_Next_Offset="1", **JSON).will(200, b"[3]", **END, **JSON)
    assert run("read", "s", "--raw").stdout_bytes == b"[1, 2]\n[3]\n"


def test_json_output_carries_the_content_and_the_offset(wire: Wire, run: Run) -> None:
    wire.will(200, b"[1.50,\n2]", Stream_Next_Offset="2", **CLOSED, **JSON)
    assert run("read", "s", "--json").stdout_bytes == (
        b'{"next_offset":"2","up_to_date":true,"closed":true,"messages":[1.50, 2]}\n'
    )


@pytest.mark.parametrize(
    ("headers", "body", "content"),
    [
        (TEXT, "grüße\n".encode(), {"text": "grüße\n"}),
        (TEXT, "ü".encode()[:1], {"base64": base64.b64encode(b"\xc3").decode()}),
        (BYTES, b"abc", {"base64": "YWJj"}),
    ],
)
def test_json_output_of_bytes(
    wire: Wire, run: Run, headers: dict[str, str], body: bytes, content: dict[str, str]
) -> None:
    wire.will(200, body, Stream_Next_Offset="1", **END, **headers)
    output = json.loads(run("read", "s", "--json").stdout)
    assert output == {"next_offset": "1", "up_to_date": True, "closed": False, **content}


def test_a_server_that_makes_no_progress_ends_the_read(wire: Wire, run: Run) -> None:
    wire.will(200, b"", Stream_Next_Offset="5", **BYTES)
    assert run("read", "s", "--offset", "5").exit_code == 0


def test_tail_starts_at_the_end_and_carries_offset_and_cursor(wire: Wire, run: Run) -> None:
    wire.will(200, b"[]", Stream_Next_Offset="3", **END, **JSON)
    wire.will(200, b"[4]", Stream_Next_Offset="4", Stream_Cursor="77", **JSON)
    wire.will(204, Stream_Next_Offset="4", Stream_Cursor="78", **END)
    wire.will(200, b"[5]", Stream_Next_Offset="5", **CLOSED, **JSON)
    result = run("tail", "s", "-n", "0", "-f")
    assert (result.exit_code, result.stdout) == (0, "4\n5\n")
    assert queries(wire) == [
        "offset=now",
        "live=long-poll&offset=3",
        "cursor=77&live=long-poll&offset=4",
        "cursor=78&live=long-poll&offset=4",
    ]


def test_tail_of_a_closed_stream_ends_at_once(wire: Wire, run: Run) -> None:
    wire.will(200, b"abc", Stream_Next_Offset="3", **CLOSED, **TEXT)
    assert run("tail", "s", "--offset", "-1", "-f").stdout == "abc"


def test_tail_prints_the_last_messages_first(wire: Wire, run: Run) -> None:
    wire.will(200, b"[3]", Stream_Next_Offset="3", **JSON)
    wire.will(200, b"[4]", Stream_Next_Offset="4", **END, **JSON)
    wire.will(204, Stream_Next_Offset="4", **CLOSED)
    assert run("tail", "s", "-f", "-n", "2").stdout == "3\n4\n"
    assert queries(wire) == ["last=2", "offset=3", "live=long-poll&offset=4"]


def test_tail_looks_for_lines_in_twice_as_many_bytes_each_time(wire: Wire, run: Run) -> None:
    lines = [b"%05d " % n + b"x" * 9_993 + b"\n" for n in range(9)]
    text = b"".join(lines)
    for size in (3, 16384, 32768):
        wire.will(200, text[-size:], Stream_Next_Offset="1", **END, **TEXT)
    assert run("tail", "s", "-n", "3").stdout_bytes == b"".join(lines[-3:])
    assert queries(wire)[:3] == ["last=3", "last=16384", "last=32768"]


def test_tail_prints_all_of_a_text_with_fewer_lines(wire: Wire, run: Run) -> None:
    wire.will(200, b"a\nb\n", **CLOSED, **TEXT).will(200, b"a\nb\n", **CLOSED, **TEXT)
    assert run("tail", "s", "-n", "4").stdout == "a\nb\n"
    assert queries(wire) == ["last=4", "last=16384"]


def test_tail_prints_the_last_ten_and_ends(wire: Wire, run: Run) -> None:
    messages = b",".join(b"%d" % number for number in range(10))
    wire.will(200, b"[%b]" % messages, Stream_Next_Offset="3", **END, **JSON)
    assert run("tail", "s").stdout.split() == [str(number) for number in range(10)]
    assert queries(wire) == ["last=10"]


def test_tail_of_nothing_prints_nothing(wire: Wire, run: Run) -> None:
    wire.will(200, b"[]", Stream_Next_Offset="3", **END, **JSON)
    assert run("tail", "s", "-n", "0", "--raw").stdout == ""
    wire.will(404)
    assert run("tail", "s", "-n", "0").exit_code == 3


def test_head_prints_the_first_messages(wire: Wire, run: Run) -> None:
    wire.will(200, b"[1, 2]", Stream_Next_Offset="2", **JSON)
    wire.will(200, b"[3, 4.0, 5]", Stream_Next_Offset="5", **END, **JSON)
    assert run("head", "s", "-n", "4").stdout == "1\n2\n3\n4.0\n"
    wire.will(200, b"[1, 2]", Stream_Next_Offset="2", **JSON)
    output = json.loads(run("head", "s", "-n", "1", "--json").stdout)
    assert (output["messages"], output["next_offset"]) == ([1], None)
    wire.will(200, b"[1, 2]", Stream_Next_Offset="2", **JSON)
    assert run("head", "s", "-n", "0").stdout == ""


@pytest.mark.parametrize(
    ("text", "count", "first"),
    [
        (b"a\nb\nc\n", 2, (b"a\nb\n", 2)),
        (b"a\rb\nc", 5, (b"a\rb\nc", 1)),
        (b"a\n", 1, (b"a\n", 1)),
        (b"a\n", 0, (b"", 0)),
    ],
)
def test_take_first_lines(text: bytes, count: int, first: tuple[bytes, int]) -> None:
    assert take_first_lines(text, count) == first


def test_head_prints_the_first_lines_of_several_chunks(wire: Wire, run: Run) -> None:
    wire.will(200, b"a\nb", Stream_Next_Offset="2", **TEXT)
    wire.will(200, b"c\nd\n", Stream_Next_Offset="5", **END, **TEXT)
    assert run("head", "s", "-n", "2").stdout == "a\nbc\n"


@pytest.mark.parametrize("command", ["read", "tail"])
def test_since_is_a_time_or_a_duration(
    wire: Wire, run: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.cli.options.time.time", lambda: 1_900_000_000.0)
    for since in ("2030-03-24T12:00:00+01:00", "90s", "2h"):
        wire.will(200, b"[1]", Stream_Next_Offset="1", **CLOSED, **JSON)
        assert run(command, "s", "--since", since).stdout == "1\n"
    assert queries(wire) == [
        "since=2030-03-24T12%3A00%3A00%2B01%3A00",
        "since=1899999910000",
        "since=1899992800000",
    ]


def test_starts_exclude_each_other(wire: Wire, run: Run) -> None:
    assert run("tail", "s", "-n", "1", "--since", "1h").exit_code == 2
    assert run("read", "s", "--offset", "-1", "--since", "1h").exit_code == 2
    assert wire.requests == []


@pytest.mark.parametrize(
    ("text", "count", "last"),
    [
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\n", 5, b"a\n"),
        (b"", 1, b""),
        (b"a\n\n", 1, b"\n"),
    ],
)
def test_take_last_lines(text: bytes, count: int, last: bytes) -> None:
    assert take_last_lines(text, count) == last


def test_tail_reconnects_and_continues(wire: Wire, run: Run, waits: list[float]) -> None:
    wire.will(200, b"", Stream_Next_Offset="3", **END, **TEXT)
    for _ in range(6):
        wire.will_drop().will(503)
    wire.will(200, b"x", Stream_Next_Offset="4", **CLOSED, **TEXT)
    result = run("tail", "s", "-n", "0", "-f")
    assert (result.exit_code, result.stdout) == (0, "x")
    assert set(queries(wire)[1:]) == {"live=long-poll&offset=3"}
    assert len(waits) == 12
    assert max(waits) <= 15


def test_tail_ends_when_the_stream_is_deleted(wire: Wire, run: Run) -> None:
    wire.will(200, b"", Stream_Next_Offset="3", **END, **TEXT).will(404)
    assert run("tail", "s", "-n", "0", "-f").exit_code == 3


def test_tail_does_not_spin_when_the_server_does_not_wait(
    wire: Wire, run: Run, waits: list[float]
) -> None:
    wire.will(200, b"", Stream_Next_Offset="3", **END, **TEXT)
    wire.will(204, Stream_Next_Offset="3").will(204, Stream_Next_Offset="3", **CLOSED)
    assert run("tail", "s", "-n", "0", "-f").exit_code == 0
    assert waits == [1.0]


def test_json_tail_prints_the_start_and_the_end(wire: Wire, run: Run) -> None:
    wire.will(200, b"[]", Stream_Next_Offset="3", **END, **JSON)
    wire.will(204, Stream_Next_Offset="3", **CLOSED)
    output = [
        json.loads(line) for line in run("tail", "s", "-n", "0", "-f", "--json").stdout.splitlines()
    ]
    assert [(line["messages"], line["closed"]) for line in output] == [([], False), ([], True)]


def test_closed_pipe_ends_the_read_quietly(wire: Wire) -> None:
    for _ in range(20):
        wire.will(200, b"x" * (1 << 20), Stream_Next_Offset=str(time.monotonic()), **BYTES)
    reading = process("read", "s", "--url", wire.url)
    assert reading.stdout is not None
    reading.stdout.read(1)
    reading.stdout.close()
    assert reading.stderr is not None
    assert reading.stderr.read() == b""
    assert reading.wait(120) == 0
    reading.stderr.close()


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is full")
def test_a_full_disk_is_one_line(wire: Wire) -> None:
    wire.will(200, b"abc", **END, **TEXT)
    with FULL.open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tailrace", "read", "s", "--url", wire.url],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"tailrace: No space left on device\n")


def test_ctrl_c_ends_a_tail_with_130(wire: Wire) -> None:
    wire.will(200, b"here\n", Stream_Next_Offset="3", **END, **TEXT)
    for _ in range(100_000):
        wire.will(204, Stream_Next_Offset="3")
    tailing = process("tail", "-f", "s", "--offset", "-1", "--url", wire.url)
    assert tailing.stdout is not None
    assert tailing.stdout.readline() == b"here\n"
    tailing.send_signal(signal.SIGINT)
    out, err = tailing.communicate(timeout=120)
    assert (tailing.returncode, out, err) == (130, b"", b"")
