from __future__ import annotations

import json
from email.utils import formatdate
from time import time
from typing import TYPE_CHECKING

import pytest

from tailrace.client.errors import (
    BadRequestError,
    ClosedError,
    ConflictError,
    ContentTypeError,
    ExistsError,
    FencedError,
    ForbiddenError,
    GoneError,
    MismatchError,
    NotFoundError,
    ProducerGapError,
    ProtocolError,
    RateLimitedError,
    SequenceError,
    ServerError,
    StreamError,
    TooLargeError,
    UnauthorizedError,
    UnclearError,
    UnreachableError,
    UnsupportedError,
)
from tailrace.client.exchange import HttpRequest, RetryPolicy, exchange
from tailrace.client.operations import (
    ProducerPlace,
    append,
    append_if_match,
    create,
    delete,
    list_streams,
)

if TYPE_CHECKING:
    from tests.unit.client.conftest import Script

URL = "http://server/v1/stream/s"
GET = HttpRequest("GET", URL)
POST = HttpRequest("POST", URL, content=b"x")
RETRIES = RetryPolicy()
TEXT = "text/plain"


def error_body(code: str, message: str = "why") -> bytes:
    return json.dumps({"error": {"code": code, "message": message}}).encode()


@pytest.mark.parametrize(
    ("method", "status", "body", "headers", "kind"),
    [
        ("GET", 400, b"", {}, BadRequestError),
        ("GET", 401, b"", {}, UnauthorizedError),
        ("GET", 403, b"", {}, ForbiddenError),
        ("POST", 403, b"", {"Producer_Epoch": "7"}, FencedError),
        ("GET", 404, b"", {}, NotFoundError),
        ("GET", 405, b"", {}, BadRequestError),
        ("PUT", 409, b"", {}, ExistsError),
        ("POST", 409, b"", {}, ConflictError),
        ("POST", 409, b"", {"Stream_Closed": "TRUE"}, ClosedError),
        ("POST", 409, b"", {"Producer_Expected_Seq": "3"}, ProducerGapError),
        ("POST", 409, error_body("SEQUENCE_CONFLICT"), {}, SequenceError),
        ("POST", 409, error_body("CONTENT_TYPE_CONFLICT"), {}, ContentTypeError),
        ("GET", 410, b"", {}, GoneError),
        ("POST", 412, b"", {}, MismatchError),
        ("POST", 413, b"", {}, TooLargeError),
        ("GET", 302, b"", {}, BadRequestError),
    ],
)
def test_a_status_is_an_error_and_is_not_retried(
    script: Script,
    method: str,
    status: int,
    body: bytes,
    headers: dict[str, str],
    kind: type[StreamError],
) -> None:
    script.will(status, body, **headers)
    with pytest.raises(StreamError) as raised:
        script.run(exchange(HttpRequest(method, URL), RETRIES))
    assert type(raised.value) is kind
    assert raised.value.status == status
    assert raised.value.code
    assert script.pauses == []


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_failure_that_may_pass_is_retried_with_growing_pauses(
    script: Script, status: int
) -> None:
    for _ in range(4):
        script.will(status)
    script.will(200)
    assert script.run(exchange(GET, RETRIES)).status == 200
    bounds = (0.05, 0.1, 0.2, 0.4)
    pairs = zip(bounds, script.pauses, strict=True)
    assert all(shortest <= pause <= 2 * shortest for shortest, pause in pairs)


def test_retries_end(script: Script) -> None:
    for _ in range(3):
        script.will(503, error_body("STORE_UNAVAILABLE", "try later"))
    with pytest.raises(ServerError, match="try later") as raised:
        script.run(exchange(GET, RetryPolicy(attempts=2)))
    assert raised.value.code == "STORE_UNAVAILABLE"
    assert len(script.requests) == 3


def test_retry_after_is_honoured_within_bounds(script: Script) -> None:
    script.will(429, Retry_After="7").will(503, Retry_After=formatdate(time() + 20))
    script.will(429, Retry_After="99999").will(429, Retry_After="soon").will(200)
    script.run(exchange(GET, RETRIES))
    assert script.pauses[0] == 7
    assert 17 < script.pauses[1] <= 20
    assert script.pauses[2] == 60
    assert script.pauses[3] <= 0.8


def test_too_many_requests_is_an_error_in_the_end(script: Script) -> None:
    script.will(429)
    with pytest.raises(RateLimitedError):
        script.run(exchange(GET, RetryPolicy(attempts=0)))


def test_a_lost_connection_is_retried(script: Script) -> None:
    script.will_lose().will_lose(delivered=False).will(200)
    assert script.run(exchange(GET, RETRIES)).status == 200
    script.will_lose(delivered=False)
    with pytest.raises(UnreachableError, match="cannot reach http://server: connection reset"):
        script.run(exchange(GET, RetryPolicy(attempts=0)))


def test_an_append_of_unknown_outcome_is_not_repeated(script: Script) -> None:
    script.will_lose(delivered=False).will(429).will(503, error_body("STORE_UNAVAILABLE"))
    script.will_lose()
    with pytest.raises(UnclearError) as raised:
        script.run(append(URL, RETRIES, b"x", content_type=TEXT))
    assert raised.value.code == "OUTCOME_UNKNOWN"
    assert "Producer" in raised.value.fix
    assert len(script.requests) == 4
    for code in ("OUTCOME_UNKNOWN", ""):
        script.will(503, error_body(code))
        with pytest.raises(ServerError):
            script.run(append(URL, RETRIES, b"x", content_type=TEXT))


def test_an_append_of_a_producer_and_a_close_are_repeated(script: Script) -> None:
    script.will_lose().will(503).will(204, Stream_Next_Offset="9")
    place = ProducerPlace("p", 1, 2)
    result = script.run(append(URL, RETRIES, b"x", content_type=TEXT, producer=place))
    assert (result.duplicate, result.next_offset) == (True, "9")
    assert script.requests[0] == script.requests[2]
    assert script.requests[0].headers == {
        "Content-Type": TEXT,
        "Producer-Id": "p",
        "Producer-Epoch": "1",
        "Producer-Seq": "2",
    }
    script.will_lose().will(204)
    assert script.run(append(URL, RETRIES, b"", content_type=None, close=True)).closed


def test_a_delete_that_succeeded_without_an_answer_succeeds(script: Script) -> None:
    script.will_lose().will(404)
    script.run(delete(URL, RETRIES))
    script.will(404)
    with pytest.raises(NotFoundError):
        script.run(delete(URL, RETRIES))


def test_a_token_is_renewed_once(script: Script) -> None:
    script.tokens.extend(["old", "new"])
    script.will(401).will(200)
    script.run(exchange(GET, RETRIES))
    sent = [request.headers["Authorization"] for request in script.requests]
    assert sent == ["Bearer old", "Bearer new"]
    script.will(401)
    with pytest.raises(UnauthorizedError):
        script.run(exchange(GET, RETRIES))


def test_errors_say_what_to_do(script: Script) -> None:
    script.will(404, b"Stream not found", Content_Type=TEXT)
    with pytest.raises(NotFoundError) as raised:
        script.run(exchange(GET, RETRIES))
    assert str(raised.value) == "Stream not found; create it first"
    script.will(404, error_body("STREAM_NOT_FOUND", "no stream at 's'; create it with PUT"))
    with pytest.raises(NotFoundError) as raised:
        script.run(exchange(GET, RETRIES))
    assert str(raised.value) == "no stream at 's'; create it with PUT"
    script.will(400, b"<html>", Content_Type="text/html")
    with pytest.raises(BadRequestError, match="Bad Request"):
        script.run(exchange(GET, RETRIES))
    script.will(410, error_body("OFFSET_TRIMMED", "gone"))
    with pytest.raises(GoneError) as gone:
        script.run(exchange(GET, RETRIES))
    assert "'-1'" in gone.value.fix
    copy = gone.value.copy()
    assert (copy.code, copy.status, str(copy)) == ("OFFSET_TRIMMED", 410, str(gone.value))


def test_create_sends_what_is_given(script: Script) -> None:
    script.will(201, Content_Type=TEXT, Stream_Next_Offset="1", Stream_TTL="60")
    result = script.run(create(URL, RETRIES, content_type=TEXT, ttl=60, closed=True, body=b"a"))
    assert script.requests[0].headers == {
        "Content-Type": TEXT,
        "Stream-TTL": "60",
        "Stream-Closed": "true",
    }
    assert (result.created, result.info.ttl, result.info.next_offset) == (True, 60, "1")


def test_a_condition_is_not_sent_to_a_server_that_would_ignore_it(script: Script) -> None:
    script.will(200)
    condition = append_if_match(URL, RETRIES, b"x", content_type=TEXT, if_match="5")
    with pytest.raises(UnsupportedError):
        script.run(condition)
    assert [request.method for request in script.requests] == ["HEAD"]
    script.will(200, X_Tailrace_Version="1").will(204)
    script.run(append_if_match(URL, RETRIES, b"x", content_type=TEXT, if_match="5"))
    assert script.requests[-1].headers["If-Match"] == '"5"'


def test_a_listing_follows_its_pages(script: Script) -> None:
    def page(*paths: str, following: str | None = None) -> bytes:
        streams = [{"path": path, "content_type": TEXT} for path in paths]
        return json.dumps({"streams": streams, "next": following}).encode()

    script.will(200, page("a%20b", "c", following="c")).will(200, page("d"))
    script.run(list_streams("http://server/", RETRIES, "/x y"))
    assert [info.name for info in script.emitted] == ["a b", "c", "d"]
    assert script.queries == ["limit=1000&prefix=x%2520y", "after=c&limit=1000&prefix=x%2520y"]
    script.will(200, b"<html>")
    with pytest.raises(ProtocolError):
        script.run(list_streams("http://server", RETRIES, ""))
    script.will(404)
    with pytest.raises(UnsupportedError):
        script.run(list_streams("http://server", RETRIES, ""))
