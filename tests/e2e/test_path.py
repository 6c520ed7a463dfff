"""The whole path as a viewer sees it: edge, cache, function URL, packaged function and DynamoDB."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

import httpx
import pytest

from devtools.local_aws.stack import AwsLocal
from devtools.processes import fresh_name
from tailrace.limits import MISSING_WAITS_SHARE
from tests.e2e.conftest import CLOSED, SECONDS
from tests.e2e.private import bearer

BYTES = {"content-type": "application/octet-stream"}
TEXT = {"content-type": "text/plain"}
JSON = {"content-type": "application/json"}
MIB = 1 << 20


@pytest.fixture
def stream() -> str:
    """The path of a stream that nobody else has."""
    return f"/v1/stream/{fresh_name('path')}"


@pytest.fixture
def public() -> str:
    """The path of a stream that everybody may read where credentials count."""
    return f"/v1/stream/open/{fresh_name('path')}"


def created(viewer: httpx.Client, path: str, kind: dict[str, str] = BYTES) -> httpx.Response:
    answer = viewer.put(path, headers=kind)
    assert answer.status_code == 201, answer.text
    return answer


def append(viewer: httpx.Client, path: str, body: bytes, kind: dict[str, str] = BYTES) -> str:
    answer = viewer.post(path, headers=kind, content=body)
    assert answer.status_code == 204, answer.text
    return str(answer.headers["stream-next-offset"])


def reads(aws_local: AwsLocal, path: str) -> int:
    """How many reads of the stream have reached a function."""
    return sum(
        times
        for name in ("http", "wait", "live")
        for (method, target), times in aws_local.requests(name).items()
        if method == "GET" and target.startswith(path)
    )


def events(answer: httpx.Response) -> Iterator[tuple[str, str]]:
    kind = ""
    for line in answer.iter_lines():
        if line.startswith("event:"):
            kind = line.removeprefix("event:").strip()
        elif line.startswith("data:"):
            yield kind, line.removeprefix("data:")


def purged(aws_local: AwsLocal, tag: str) -> None:
    """Waits for the table's stream, the dispatch function and the invalidation."""
    deadline = time.monotonic() + SECONDS
    while tag not in aws_local.invalidations.purged:
        assert time.monotonic() < deadline, f"{tag} was not purged: {aws_local.output()}"
        time.sleep(0.05)


def test_events_arrive_one_by_one_while_the_function_runs(
    guarded: httpx.Client, public: str
) -> None:
    writer = {**JSON, **bearer("write")}
    created(guarded, public, writer)
    with guarded.stream("GET", public, params={"offset": "-1", "live": "sse"}) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        arriving = events(answer)
        assert next(arriving)[0] == "control"
        for number in range(3):
            append(guarded, public, json.dumps({"n": number}).encode(), writer)
            # It comes although the answer has not ended: the next one is not even written.
            assert json.loads(next(e for k, e in arriving if k == "data")) == [{"n": number}]


def test_readers_of_events_do_not_share_an_answer(
    guarded: httpx.Client, closed_local: AwsLocal, public: str
) -> None:
    writer = {**TEXT, **bearer("write")}
    created(guarded, public, writer)
    params = {"offset": "-1", "live": "sse"}
    with (
        guarded.stream("GET", public, params=params) as one,
        guarded.stream("GET", public, params=params) as two,
    ):
        streams = events(one), events(two)
        assert [next(each)[0] for each in streams] == ["control", "control"]
        append(guarded, public, b"hello", writer)
        assert [next(e for k, e in each if k == "data") for each in streams] == ["hello", "hello"]
    assert reads(closed_local, public) == 2


def test_an_event_source_resumes_behind_its_last_event(guarded: httpx.Client, public: str) -> None:
    """A browser reconnects to the same URL, and says in a header what it has."""
    writer = {**JSON, **bearer("write")}
    created(guarded, public, writer)
    first = append(guarded, public, b"1", writer)
    append(guarded, public, b"2", writer)
    params = {"last": "2", "live": "sse"}
    with guarded.stream("GET", public, params=params) as answer:
        assert next(data for kind, data in events(answer) if kind == "data") == "[1,2]"
    resumed = {"last-event-id": first}
    with guarded.stream("GET", public, params=params, headers=resumed) as answer:
        assert next(data for kind, data in events(answer) if kind == "data") == "[2]"
    end = guarded.post(public, headers={**writer, "stream-closed": "true"})
    at_end = {"last-event-id": end.headers["stream-next-offset"]}
    assert guarded.get(public, params=params, headers=at_end).status_code == 204


def test_a_stream_below_the_second_mount_may_be_read_before_it_exists(
    guarded: httpx.Client, public: str
) -> None:
    room = public.replace("/v1/stream/", "/ds/")
    for offset in ("0", "-1", ""):
        empty = guarded.get(room, params={"offset": offset})
        assert (empty.status_code, empty.content) == (200, b"[]")
        assert empty.headers["cache-control"] == "no-store"
    assert guarded.get(public).status_code == 404
    with guarded.stream("GET", room, params={"offset": "0", "live": "sse"}) as answer:
        arriving = events(answer)
        assert next(arriving)[0] == "control"
        writer = {**JSON, **bearer("write")}
        created(guarded, public, writer)
        append(guarded, public, b'"hello"', writer)
        assert next(data for kind, data in arriving if kind == "data") == '["hello"]'
    assert guarded.get(room).json() == guarded.get(public).json() == ["hello"]


def test_waits_for_streams_that_do_not_exist_are_bounded(guarded: httpx.Client) -> None:
    """The edge leaves encoded names to the function, which knows the client by its token."""
    room, reader = f"/ds/open/{fresh_name('room')}%09", bearer("read", sub=fresh_name("stranger"))
    live = {"offset": "-1", "live": "sse"}
    with contextlib.ExitStack() as stack:
        for number in range(int(CLOSED["TAILRACE_MISSING_WAITS"]) // MISSING_WAITS_SHARE):
            waiting = guarded.stream("GET", f"{room}{number}", params=live, headers=reader)
            assert next(events(stack.enter_context(waiting)))[0] == "control"
        for mode in ("sse", "long-poll"):
            refused = guarded.get(f"{room}-", params={**live, "live": mode}, headers=reader)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) > 0
        assert guarded.get(f"{room}-", headers=reader).json() == []


def test_many_streams_are_read_by_one_request(guarded: httpx.Client, stream: str) -> None:
    writer, reader = {**JSON, **bearer("write")}, bearer("read")
    names = [f"{stream.removeprefix('/v1/stream/')}/{each}" for each in "ab"]
    for name in names:
        created(guarded, f"/v1/stream/{name}", writer)
        append(guarded, f"/v1/stream/{name}", b"[1, 2]", writer)
    query = {"stream": names, "last": "1"}
    assert guarded.get("/v1/read", params=query).status_code == 401
    answer = guarded.get("/v1/read", params=query, headers=reader)
    assert answer.headers["cache-control"] == "no-store"
    assert [each["data"] for each in answer.json()["streams"]] == [[2], [2]]
    position = {"stream": names, "offset": answer.json()["nextOffset"]}
    waiting = {**position, "live": "sse"}
    with guarded.stream("GET", "/v1/read", params=waiting, headers=reader) as sse:
        arriving = events(sse)
        assert next(arriving)[0] == "control"
        append(guarded, f"/v1/stream/{names[1]}", b"3", writer)
        told = next(data for kind, data in arriving if kind == "data")
        assert json.loads(told) == {"stream": names[1], "data": [3]}
    polled = guarded.get("/v1/read", params={**position, "live": "long-poll"}, headers=reader)
    waited = {each["stream"]: each["data"] for each in polled.json()["streams"]}
    assert waited[names[1]] == [3]
    refused = guarded.get("/v1/read", params={"stream": f"{names[0]}*"}, headers=reader)
    assert refused.status_code == 400


def test_the_last_messages_lead_to_what_all_readers_share(
    viewer: httpx.Client, aws_local: AwsLocal, stream: str
) -> None:
    created(viewer, stream, TEXT)
    append(viewer, stream, b"o" * MIB, TEXT)
    append(viewer, stream, b"two", TEXT)
    for number in (1, 2):
        last = viewer.get(stream, params={"last": "4"})
        assert (last.text, last.headers["cache-control"]) == ("o", "no-store")
        assert reads(aws_local, stream) == number
    # Where a reader is who came from the beginning.
    first = viewer.get(stream)
    assert first.headers["stream-next-offset"] == last.headers["stream-next-offset"]
    since = viewer.get(stream, params={"since": "4102444800"})
    assert (since.text, since.headers["cache-control"]) == ("", "no-store")


def test_an_append_may_name_the_end_that_it_expects(viewer: httpx.Client, stream: str) -> None:
    created(viewer, stream, TEXT)
    held = viewer.head(stream).headers["etag"]
    first = viewer.post(stream, headers={**TEXT, "if-match": held}, content=b"one")
    assert first.status_code == 204
    late = viewer.post(stream, headers={**TEXT, "if-match": held}, content=b"late")
    assert late.status_code == 412
    again = {**TEXT, "if-match": first.headers["etag"]}
    assert viewer.post(stream, headers=again, content=b" two").status_code == 204
    assert viewer.get(stream).text == "one two"


def test_answers_without_a_body_have_none(viewer: httpx.Client, stream: str) -> None:
    created(viewer, stream)
    end = append(viewer, stream, b"some")
    head = viewer.head(stream)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["stream-next-offset"] == end
    assert head.headers["cache-control"] == "no-store"
    waited = viewer.get(stream, params={"offset": end, "live": "long-poll"})
    assert (waited.status_code, waited.content) == (204, b"")
    assert waited.headers["stream-up-to-date"] == "true"
    read = viewer.get(stream)
    again = viewer.get(stream, headers={"if-none-match": read.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_missing_stream_is_not_remembered(viewer: httpx.Client, stream: str) -> None:
    assert viewer.get(stream).status_code == 404
    created(viewer, stream)
    assert viewer.get(stream).status_code == 200


def test_an_append_is_readable_immediately(viewer: httpx.Client, stream: str) -> None:
    created(viewer, stream, TEXT)
    for number in range(6):
        append(viewer, stream, f"{number} ".encode(), TEXT)
        assert viewer.get(stream).text.split() == [str(each) for each in range(number + 1)]


def test_the_location_is_where_the_viewer_is(
    viewer: httpx.Client, aws_local: AwsLocal, stream: str
) -> None:
    location = created(viewer, stream).headers["location"]
    assert location == f"https://127.0.0.1:{aws_local.port}{stream}"


def test_a_full_chunk_is_answered_by_the_cache(
    viewer: httpx.Client, aws_local: AwsLocal, stream: str
) -> None:
    created(viewer, stream)
    for _ in range(3):
        append(viewer, stream, bytes(MIB // 2 + 1))
    first = viewer.get(stream, params={"offset": "-1"})
    assert "stream-up-to-date" not in first.headers
    again = viewer.get(stream, params={"offset": "-1"})
    known = viewer.get(
        stream, params={"offset": "-1"}, headers={"if-none-match": first.headers["etag"]}
    )
    assert again.content == first.content
    assert (known.status_code, known.content) == (304, b"")
    assert reads(aws_local, stream) == 1


def test_every_answer_is_open_to_other_origins(viewer: httpx.Client, stream: str) -> None:
    asked = {"origin": "https://example.com", "access-control-request-method": "PUT"}
    preflight = viewer.options(stream, headers=asked)
    assert preflight.status_code == 204
    assert "PUT" in preflight.headers["access-control-allow-methods"]
    for answer in (
        preflight,
        created(viewer, stream),
        viewer.get(stream),
        viewer.get("/v1/stream/"),
    ):
        assert answer.headers.get_list("access-control-allow-origin") == ["*"]
        assert "Stream-Next-Offset" in answer.headers["access-control-expose-headers"]


def test_a_body_has_at_most_three_megabytes(viewer: httpx.Client, stream: str) -> None:
    created(viewer, stream)
    body = bytes(range(256)) * (3 * MIB // 256)
    append(viewer, stream, body)
    assert viewer.get(stream).content == body
    assert viewer.post(stream, headers=BYTES, content=body + b"1").status_code == 413
    assert viewer.post(stream, headers=BYTES, content=bytes(7 * MIB)).status_code == 413
    assert viewer.get(stream).content == body


@pytest.mark.parametrize("name", ["a%2Fb", "a/b", "a%20b", "caf%C3%A9", "a%2520b", "a+b"])
def test_a_stream_name_is_used_as_it_was_sent(viewer: httpx.Client, stream: str, name: str) -> None:
    path = f"{stream}-{name}"
    assert created(viewer, path, TEXT).headers["location"].endswith(path)
    append(viewer, path, name.encode(), TEXT)
    assert viewer.get(path).text == name


def test_a_slash_and_its_code_name_two_streams(viewer: httpx.Client, stream: str) -> None:
    created(viewer, f"{stream}/b")
    assert viewer.get(f"{stream}%2Fb").status_code == 404


def test_both_prefixes_lead_to_the_same_stream(viewer: httpx.Client, stream: str) -> None:
    created(viewer, stream, TEXT)
    append(viewer, stream, b"one", TEXT)
    assert viewer.get(stream.replace("/v1/stream/", "/ds/")).text == "one"


@pytest.mark.parametrize("name", ["http", "wait", "live"])
def test_direct_requests_to_the_function_are_refused(
    aws_local: AwsLocal, stream: str, name: str
) -> None:
    url = aws_local.urls[name].url
    for headers in ({}, {"x-tailrace-origin": "guess"}):
        answer = httpx.get(f"{url}{stream}?offset=-1&live=sse", headers=headers, trust_env=False)
        assert answer.status_code == 403


def test_viewers_cannot_set_the_edges_own_headers(
    viewer: httpx.Client, aws_local: AwsLocal, stream: str
) -> None:
    said = {"x-tailrace-origin": "guess", "x-forwarded-host": "evil.example"}
    answer = viewer.put(stream, headers={**BYTES, **said})
    assert answer.status_code == 201
    assert answer.headers["location"].startswith(f"https://127.0.0.1:{aws_local.port}/")


def test_a_recreated_stream_is_not_served_from_the_old_ones_cache(
    viewer: httpx.Client, aws_local: AwsLocal, stream: str
) -> None:
    created(viewer, stream, TEXT)
    for _ in range(3):
        append(viewer, stream, b"o" * (MIB // 2 + 1), TEXT)
    old = viewer.get(stream, params={"offset": "-1"})
    assert viewer.get(stream, params={"offset": "-1"}).headers["etag"] == old.headers["etag"]
    assert reads(aws_local, stream) == 1
    assert viewer.delete(stream).status_code == 204
    purged(aws_local, old.headers["cache-tag"])
    assert viewer.get(stream, params={"offset": "-1"}).status_code in (404, 410)
    created(viewer, stream, TEXT)
    append(viewer, stream, b"new", TEXT)
    assert viewer.get(stream, params={"offset": "-1"}).text == "new"


def test_a_recreated_stream_that_was_not_purged_begins_anew(
    viewer: httpx.Client, aws_local: AwsLocal, stream: str
) -> None:
    short = {**TEXT, "stream-ttl": "3600"}
    viewer.put(stream, headers={**short, "stream-closed": "true"}, content=b"old")
    old = viewer.get(stream, params={"offset": "-1"})
    assert old.text == "old"
    assert viewer.delete(stream).status_code == 204
    created(viewer, stream, short)
    append(viewer, stream, b"new", TEXT)
    deadline = time.monotonic() + SECONDS
    while viewer.get(stream, params={"offset": "-1"}).text != "new":
        assert time.monotonic() < deadline, "the old stream's beginning stayed in the cache"
        time.sleep(0.05)
    assert old.headers["cache-tag"] not in aws_local.invalidations.purged


def test_documents_come_from_the_function_too(viewer: httpx.Client) -> None:
    assert viewer.get("/health").json()["status"] == "ok"
    assert "/v1/stream/{path}" in json.dumps(viewer.get("/openapi.json").json())
    assert "<html" in viewer.get("/docs").text
