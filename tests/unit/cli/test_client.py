from __future__ import annotations

import json
import socket
import threading
from email.utils import formatdate
from time import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run, Wire


def error(code: str, message: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": message}}).encode()


@pytest.mark.parametrize(
    ("status", "exit_code"),
    [(400, 2), (401, 6), (403, 6), (404, 3), (409, 4), (410, 3), (413, 7), (405, 1), (302, 1)],
)
def test_a_status_is_an_exit_code_and_is_not_retried(
    wire: Wire, run: Run, waits: list[float], status: int, exit_code: int
) -> None:
    wire.will(status, error("SOME_CODE", "some\nreason"))
    result = run("rm", "s", "--json")
    assert result.exit_code == exit_code
    assert result.stdout == ""
    failure = json.loads(result.stderr)["error"]
    assert failure["code"] == "SOME_CODE"
    assert failure["status"] == status
    assert failure["exit_code"] == exit_code
    assert status == 404 or "cannot delete 's': " in failure["message"]
    assert status == 404 or "some reason" in failure["message"]
    assert (len(wire.requests), waits) == (1, [])


def test_an_error_for_people_is_one_line_with_the_fix(wire: Wire, run: Run) -> None:
    wire.will(404, error("STREAM_NOT_FOUND", "no stream"))
    assert run("read", "my room").stderr == (
        "tailrace: cannot read 'my room': no stream at 'my room'; see 'tailrace ls' or create it"
        " with 'tailrace create 'my room''\n"
    )


def test_an_error_in_plain_text_or_html_is_understood(wire: Wire, run: Run) -> None:
    wire.will(400, b"no good", Content_Type="text/plain")
    assert run("rm", "s").stderr == "tailrace: cannot delete 's': no good\n"
    wire.will(400, b"<html>", Content_Type="text/html")
    assert run("rm", "s").stderr == "tailrace: cannot delete 's': Bad Request\n"


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_temporary_failures_are_retried_with_backoff(
    wire: Wire, run: Run, waits: list[float], status: int
) -> None:
    wire.will(status).will(status).will(204)
    assert run("rm", "s").exit_code == 0
    assert len(wire.requests) == 3
    assert 0.05 <= waits[0] <= 0.1 <= waits[1] <= 0.2


@pytest.mark.usefixtures("waits")
def test_persistent_failure_is_reported(wire: Wire, run: Run) -> None:
    wire.will(503).will(503).will(503, error("STORE_UNAVAILABLE", "try later"))
    result = run("rm", "s")
    assert result.exit_code == 1
    assert (
        result.stderr == "tailrace: cannot delete 's': the server responded with 503: try later\n"
    )


@pytest.mark.usefixtures("waits")
def test_a_lost_connection_is_retried(wire: Wire, run: Run) -> None:
    wire.will_drop().will(204)
    assert run("rm", "s").exit_code == 0


def test_retry_after_is_honoured_in_seconds_and_as_a_date(
    wire: Wire, run: Run, waits: list[float]
) -> None:
    wire.will(429, Retry_After="7").will(503, Retry_After=formatdate(time() + 20)).will(204)
    result = run("rm", "s")
    assert waits[0] == 7
    assert 17 < waits[1] <= 20
    assert "retrying in 7 s" in result.stderr


@pytest.mark.parametrize(("value", "longest"), [("99999", 60), ("soon", 0.1), ("", 0.1)])
def test_retry_after_is_bounded_and_may_be_invalid(
    wire: Wire, run: Run, waits: list[float], value: str, longest: float
) -> None:
    wire.will(429, Retry_After=value).will(204)
    assert run("rm", "s").exit_code == 0
    assert waits[0] <= longest


@pytest.mark.usefixtures("waits")
def test_unreachable_server_is_exit_5_and_is_named(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    result = run("ls", "--url", f"http://u:secret@127.0.0.1:{port}")
    assert result.exit_code == 5
    assert result.stderr == (
        f"tailrace: cannot reach http://127.0.0.1:{port}: Connection refused; start a server with"
        " 'tailrace serve' or set --url\n"
    )


@pytest.mark.usefixtures("waits")
def test_server_that_does_not_speak_http_is_exit_5(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.listen(0)
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"

        def answer() -> None:
            for _ in range(3):
                connection, _ = mute.accept()
                connection.sendall(b"SSH-2.0-OpenSSH\r\n")
                connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        assert run("ls", "--url", url).exit_code == 5
        thread.join()


def test_token_is_sent_as_a_bearer_token(wire: Wire, run: Run) -> None:
    wire.will(204).will(204).will(204)
    run("rm", "s")
    run("rm", "s", "--token", "abc")
    run("rm", "s", TAILRACE_TOKEN="def")
    sent = [request.headers.get("Authorization") for request in wire.requests]
    assert sent == [None, "Bearer abc", "Bearer def"]


def test_a_full_url_keeps_its_encoding_and_query(wire: Wire, run: Run) -> None:
    wire.will(200, b"x", Stream_Up_To_Date="true")
    run("read", f"{wire.url}/v1/stream/a%2Fb?key=1")
    assert wire.targets == [("GET", "/v1/stream/a%2Fb?key=1&offset=-1")]
