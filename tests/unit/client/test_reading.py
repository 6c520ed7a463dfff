from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.client.content import (
    ContentKind,
    StreamChunk,
    encode_body,
    encode_json,
    encode_message,
    join_chunks,
    join_messages,
)
from tailrace.client.errors import (
    GoneError,
    NotFoundError,
    ProtocolError,
    StaleCacheError,
    UnreachableError,
    UnsupportedError,
)
from tailrace.client.events import EventParser, ServerEvent
from tailrace.client.exchange import FOR_EVER, LostConnection, RetryPolicy
from tailrace.client.reading import LiveMode, ReadStart, StreamReading, take_last

if TYPE_CHECKING:
    from tests.unit.client.conftest import Script

URL = "http://server/v1/stream/s"
JSON = "application/json"
BYTES = "application/octet-stream"
LOST = LostConnection("connection reset", delivered=True)
END: dict[str, Any] = {"Stream_Up_To_Date": "true", "X_Tailrace_Version": "1"}
CLOSED: dict[str, Any] = {**END, "Stream_Closed": "true"}


def reading(retries: RetryPolicy = FOR_EVER) -> StreamReading:
    return StreamReading(URL, RetryPolicy(), retries, 150.0)


def tail(script: Script, mode: LiveMode, start: ReadStart | None = None) -> list[list[object]]:
    script.run(reading().tail(start or ReadStart("-1"), mode))
    return [chunk.json() for chunk in script.emitted]


def event(name: str, data: object) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return b"event: %b\ndata:%b\n\n" % (name.encode(), text.encode())


def control(offset: str, **more: object) -> bytes:
    return event("control", {"streamNextOffset": offset, **more})


def test_chunks_are_followed_to_the_end(script: Script) -> None:
    script.will(200, b"[1]", Content_Type=JSON, Stream_Next_Offset="1")
    script.will(200, b"[2]", Content_Type=JSON, Stream_Next_Offset="2", **END)
    chunk = script.run(reading().all(ReadStart()))
    assert (chunk.json(), chunk.next_offset, chunk.up_to_date) == ([1, 2], "2", True)
    assert script.queries == ["offset=-1", "offset=1"]


def test_a_server_without_progress_ends_the_read(script: Script) -> None:
    script.will(200, b"", Stream_Next_Offset="5")
    assert script.run(reading().all(ReadStart("5"))).is_empty


def test_starts_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="offset and last exclude each other"):
        ReadStart("1", last=2).parameters("-1")
    with pytest.raises(ValueError, match="at least 1"):
        ReadStart(last=0).parameters("-1")
    with pytest.raises(ValueError, match="time zone"):
        ReadStart(since=datetime(2030, 1, 1)).parameters("-1")  # noqa: DTZ001
    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert ReadStart(since=at).parameters("-1") == {"since": str(int(at.timestamp()) * 1000)}


def test_since_is_not_taken_for_the_beginning(script: Script) -> None:
    script.will(200, b"everything", Stream_Next_Offset="5")
    with pytest.raises(UnsupportedError):
        script.run(reading().all(ReadStart(since=5)))


def test_the_last_messages_of_a_server_that_sends_all(script: Script) -> None:
    script.will(200, b"[1, 2]", Content_Type=JSON, Stream_Next_Offset="1")
    script.will(200, b"[3]", Content_Type=JSON, Stream_Next_Offset="2", **END)
    assert script.run(reading().last(2)).json() == [2, 3]
    assert script.queries == ["last=2", "offset=1"]
    text = StreamChunk("grüße".encode(), "text/plain", "1")
    assert take_last(text, 4).text() == "ße"
    assert take_last(text, 2).text() == "e"
    assert take_last(text, 99).text() == "grüße"


def test_polls_carry_offset_and_cursor(script: Script) -> None:
    script.will(200, b"[]", Content_Type=JSON, Stream_Next_Offset="3", **END)
    script.will(200, b"[4]", Stream_Next_Offset="4", Stream_Cursor="77")
    script.will(204, Stream_Next_Offset="4", Stream_Cursor="78", **END)
    script.will(200, b"[5]", Stream_Next_Offset="5", **CLOSED)
    assert tail(script, "long-poll", ReadStart()) == [[], [4], [5]]
    assert script.queries == [
        "offset=now",
        "live=long-poll&offset=3",
        "cursor=77&live=long-poll&offset=4",
        "cursor=78&live=long-poll&offset=4",
    ]
    assert script.pauses == [1.0]  # The clock stood still: this server does not wait.


def test_the_end_of_a_server_that_keeps_back_the_last_append(script: Script) -> None:
    script.will(200, b"[1]", Content_Type=JSON, Stream_Next_Offset="1")
    script.will(204, Stream_Next_Offset="1", Stream_Up_To_Date="true")
    script.answers.clear()
    script.will(200, b"[1]", Content_Type=JSON, Stream_Next_Offset="1", Stream_Up_To_Date="true")
    script.will(204, Stream_Next_Offset="1", Stream_Closed="true")
    script.will(200, b"[2]", Stream_Next_Offset="2", Content_Type=JSON, Stream_Closed="true")
    assert tail(script, "long-poll") == [[1], [2]]


def test_events_count_when_their_control_event_has_come(script: Script) -> None:
    script.will(200, b"[1]", Content_Type=JSON, Stream_Next_Offset="1", **END)
    script.will_stream(
        event("data", [2]) + control("2")[:9], control("2")[9:] + event("data", [3]), LOST
    )
    script.will_stream(event("data", [3]) + control("3", streamCursor="8"), LOST)
    script.will_stream(control("3", streamClosed=True))
    assert tail(script, "auto") == [[1], [2], [3], []]
    assert script.queries[1:] == [
        "live=sse&offset=1",
        "live=sse&offset=2",
        "cursor=8&live=sse&offset=3",
    ]
    assert script.emitted[-1].closed


def test_several_data_events_are_one_chunk(script: Script) -> None:
    script.will(200, b"[]", Content_Type=JSON, Stream_Next_Offset="0", **END)
    script.will_stream(
        event("data", [1]) + event("data", []) + event("data", [2, 3]),
        control("3", streamClosed=True),
    )
    assert tail(script, "sse") == [[], [1, 2, 3]]


def test_bytes_come_as_base64(script: Script) -> None:
    script.will(200, b"", Content_Type=BYTES, Stream_Next_Offset="0", **END)
    script.will_stream(
        b"event: data\ndata:AP8K\ndata:DQ==\n\n" + control("4", streamClosed=True),
        stream_sse_data_encoding="base64",
    )
    script.run(reading().tail(ReadStart(), "auto"))
    assert script.emitted[-1].body == b"\x00\xff\n\r"


def test_a_deleted_stream_ends_the_tail(script: Script) -> None:
    script.will(200, b"[]", Content_Type=JSON, Stream_Next_Offset="0", **END)
    script.will_stream(event("deleted", {}))
    with pytest.raises(NotFoundError):
        tail(script, "auto")
    script.will(200, b"[]", Content_Type=JSON, Stream_Next_Offset="0", **END)
    script.will_stream(b"").will(410)
    with pytest.raises(GoneError, match="'-1'"):
        tail(script, "auto")


@pytest.mark.parametrize("refusal", ["status", "type", "content"])
def test_a_server_without_events_is_polled(script: Script, refusal: str) -> None:
    script.will(200, b"[]", Content_Type=JSON, Stream_Next_Offset="0", **END)
    if refusal == "status":
        script.will(400)
    elif refusal == "type":
        script.will(200, b"[]", Content_Type=JSON)
    else:
        script.will_stream(event("control", "{}"))
    script.will(200, b"[1]", Stream_Next_Offset="1", **CLOSED)
    assert tail(script, "auto") == [[], [1]]
    assert script.queries[-1] == "live=long-poll&offset=0"


def test_a_proxy_that_ends_responses_at_once_is_polled(script: Script) -> None:
    script.will(200, b"[]", Content_Type=JSON, Stream_Next_Offset="0", **END)
    script.will_stream(b"").will_stream(control("0")).will_stream(b"")
    script.will(200, b"[1]", Stream_Next_Offset="1", **CLOSED)
    assert tail(script, "auto") == [[], [1]]


def test_events_that_are_asked_for_are_not_replaced(script: Script) -> None:
    script.will(200, b"[]", Content_Type=JSON, Stream_Next_Offset="0", **END)
    script.will(200, b"[]", Content_Type=JSON)
    with pytest.raises(ProtocolError):
        tail(script, "sse")


def test_text_is_polled(script: Script) -> None:
    script.will(200, b"", Content_Type="text/plain", Stream_Next_Offset="0", **END)
    script.will(200, b"a\r\n", Stream_Next_Offset="3", **CLOSED)
    script.run(reading().tail(ReadStart(), "auto"))
    assert script.emitted[-1].body == b"a\r\n"


def test_a_tail_may_give_up(script: Script) -> None:
    script.will(200, b"[]", Content_Type=JSON, Stream_Next_Offset="0", **END)
    script.will_stream(LOST).will_stream(LOST)
    with pytest.raises(UnreachableError):
        script.run(reading(RetryPolicy(attempts=1)).tail(ReadStart(), "sse"))


def test_a_response_that_a_cache_repeats_is_dropped(script: Script) -> None:
    script.will(200, b"[1]", Content_Type=JSON, Stream_Next_Offset="1", ETag='"a"', **END)
    script.will(200, b"[2]", Stream_Next_Offset="2", ETag='"b"', Stream_Cursor="5")
    script.will(200, b"[2]", Stream_Next_Offset="2", ETag='"b"', Stream_Cursor="5")
    script.will(200, b"[1]", Stream_Next_Offset="1", ETag='"a"', Stream_Cursor="5")
    script.will(204, Stream_Next_Offset="2", Stream_Cursor="5", **END)
    script.will(200, b"[3]", Stream_Next_Offset="3", ETag='"c"', **CLOSED)
    assert tail(script, "long-poll") == [[1], [2], [3]]
    assert ["fresh=" in query for query in script.queries] == [False] * 3 + [True] * 3
    assert script.requests[-1].headers["Cache-Control"] == "no-cache"
    assert len(script.pauses) == 3


def test_a_cache_that_only_repeats_is_an_error(script: Script) -> None:
    script.will(200, b"[1]", Content_Type=JSON, Stream_Next_Offset="1", **END)
    for _ in range(5):
        script.will(204, Stream_Next_Offset="1", Stream_Cursor="5")
    script.will(204, Stream_Next_Offset="1", Stream_Cursor="5")
    with pytest.raises(StaleCacheError, match="cursor"):
        tail(script, "long-poll")


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab\r\n: ", max_size=12), max_size=5), st.data())
def test_events_are_parsed_from_any_pieces(texts: list[str], data: st.DataObject) -> None:
    lines = [text.replace("\r\n", "\n").replace("\r", "\n").split("\n") for text in texts]
    body = b"".join(
        b"event: data\n" + b"".join(b"data: %b\n" % line.encode() for line in each) + b"\n"
        for each in lines
    )
    for end in (b"\n", b"\r\n", b"\r"):
        wire = b": comment" + end + body.replace(b"\n", end)
        parser, events, place = EventParser(), list[ServerEvent](), 0
        while place < len(wire):
            size = data.draw(st.integers(1, 9))
            events += parser.feed(wire[place : place + size])
            place += size
        events += parser.feed(b"\n")
        assert [each.data for each in events] == ["\n".join(each) for each in lines]


def test_values_are_encoded() -> None:
    kind = ContentKind.of("Application/JSON; charset=utf-8")
    assert encode_body(kind, [1, 2]) == b"[[1,2]]"
    assert encode_body(kind, b"[1,2]") == b"[1,2]"
    assert encode_body(kind, "a") == b'["a"]'
    assert encode_json("\ud800") == b'"\\ud800"'
    with pytest.raises(ValueError, match="JSON compliant"):
        encode_json(float("nan"))
    assert encode_message(ContentKind.of("text/html"), "ü") == "ü".encode()
    assert join_messages(ContentKind.BYTES, [b"a", bytes(bytearray(b"b"))]) == b"ab"


def test_chunks_of_json_are_joined_as_text() -> None:
    parts = [StreamChunk(body, JSON, "1") for body in (b"[1.50]", b"[]", b" [2 , 3]\n", b"")]
    assert join_chunks(parts).body == b"[1.50,2 , 3]"
    with pytest.raises(TypeError):
        StreamChunk(b"a", "text/plain", "1").json()
