"""The routes: answers, errors, and frames from the first to the last."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from tailrace.clock import system_clock
from tailrace.errors import OffsetTrimmed, StoreUnavailable
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.offsets import BEGINNING
from tailrace.protocols.aviso.errors import LABELS
from tailrace.streams import View
from tailrace.web.messages import Response, Streaming
from tests.support.aviso import SQUARE, WORKING, Aviso, Collected, Make

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
SECOND = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
PRODUCT = {"event_type": "product", "identifier": WORKING}
ALL: dict[str, Any] = {"event_type": "product", "identifier": {}, "from_id": "0"}


async def numbered(aviso: Aviso, *steps: int) -> None:
    for step in steps:
        await aviso.notify(identifier={**WORKING, "step": step}, payload=step)


# Publishing


async def test_a_notification_is_acknowledged(aviso: Aviso) -> None:
    answer = await aviso.ask("POST", "/api/v1/notification", PRODUCT)
    assert isinstance(answer, Response)
    told = json.loads(answer.body)
    assert answer.status == 200
    assert list(told) == ["status", "request_id", "processed_at"]
    assert told["status"] == "success"
    assert UUID.fullmatch(told["request_id"])
    assert SECOND.fullmatch(told["processed_at"])
    assert (b"x-request-id", told["request_id"].encode()) in answer.headers


async def test_the_content_type_of_a_notification_does_not_matter(aviso: Aviso) -> None:
    for kind in ("text/plain", "application/json", ""):
        headers = {"content-type": kind}
        assert (await aviso.response("POST", "/api/v1/notification", PRODUCT, headers))[0] == 200


@pytest.mark.parametrize(
    ("path", "fields", "status", "code"),
    [
        ("notification", b"", 400, "INVALID_JSON"),
        ("notification", {"x": 1}, 400, "UNKNOWN_FIELD"),
        ("notification", {}, 400, "INVALID_REQUEST_SHAPE"),
        ("notification", {**PRODUCT, "event_type": "x"}, 400, "UNKNOWN_EVENT_TYPE"),
        ("notification", {**PRODUCT, "identifier": {}}, 400, "INVALID_NOTIFICATION_REQUEST"),
        ("watch", b"", 400, "INVALID_JSON"),
        ("watch", {**ALL, "identifier": {"x": 1}}, 400, "INVALID_WATCH_REQUEST"),
        ("replay", {"event_type": "product", "identifier": {}}, 400, "INVALID_REPLAY_REQUEST"),
    ],
)
async def test_a_refusal_has_its_code_and_the_name_of_the_request(
    aviso: Aviso, path: str, fields: object, status: int, code: str
) -> None:
    answer = await aviso.ask("POST", f"/api/v1/{path}", fields, {"x-request-id": "mine"})
    assert isinstance(answer, Response)
    told = json.loads(answer.body)
    assert (answer.status, told["code"]) == (status, code)
    assert list(told) == sorted(told)
    assert UUID.fullmatch(told["request_id"])
    assert dict(answer.headers)[b"x-request-id"].decode() == told["request_id"]
    assert ("details" in told) == (code not in LABELS)


async def test_a_key_makes_a_notification_safe_to_send_again(aviso: Aviso) -> None:
    for key in ("one", "one", "two", "one"):
        await aviso.notify({"idempotency-key": key})
    assert (await aviso.replay()).sequences() == [1, 2]
    await aviso.notify()
    await aviso.notify()
    assert (await aviso.replay()).sequences() == [1, 2, 3, 4]


@pytest.mark.parametrize("key", ["", "a b", "x" * 257, "é"])
async def test_other_keys_are_refused(aviso: Aviso, key: str) -> None:
    headers = {"idempotency-key": key}
    status, told = await aviso.response("POST", "/api/v1/notification", PRODUCT, headers)
    assert (status, told["code"]) == (400, "INVALID_NOTIFICATION_REQUEST")


async def test_a_body_has_a_largest_size(aviso: Aviso) -> None:
    for size, status in ((100_000, 200), (262_144, 413)):
        answer = await aviso.ask("POST", "/api/v1/notification", {**PRODUCT, "payload": "x" * size})
        assert isinstance(answer, Response)
        assert answer.status == status


async def test_what_cannot_be_stored_is_told(aviso: Aviso, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailable("out of order")

    monkeypatch.setattr(aviso.streams, "append", fail)
    status, told = await aviso.response("POST", "/api/v1/notification", PRODUCT)
    assert (status, told["code"]) == (500, "NOTIFICATION_STORAGE_FAILED")
    assert told["details"] == "out of order"
    monkeypatch.setattr(aviso.streams, "find", fail)
    status, told = await aviso.response("POST", "/api/v1/replay", ALL)
    assert (status, told["code"]) == (500, "SSE_STREAM_INITIALIZATION_FAILED")
    assert told["topic"] == "prod.*.*.*.*.*.*.*"


async def test_the_notifications_are_a_durable_stream(aviso: Aviso) -> None:
    await numbered(aviso, 1, 2)
    view = await aviso.streams.view("aviso/prod", 0)
    assert [json.loads(body)["data"]["payload"] for body in view.bodies] == [1, 2]


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "notification"), ("PUT", "watch"), ("POST", "schema"), ("HEAD", "schema"),
     ("GET", "nothing"), ("POST", "notification/"), ("GET", ""), ("POST", "admin/wipe/all"),
     ("DELETE", "admin/nothing"), ("DELETE", "admin/notification/"), ("GET", "schema/")],
)  # fmt: skip
async def test_what_is_no_route_is_not_found(aviso: Aviso, method: str, path: str) -> None:
    answer = await aviso.ask(method, f"/api/v1/{path}")
    assert isinstance(answer, Response)
    assert (answer.status, answer.body) == (404, b"")
    assert UUID.fullmatch(dict(answer.headers)[b"x-request-id"].decode())


async def test_a_page_of_another_site_may_ask(aviso: Aviso) -> None:
    answer = await aviso.ask(
        "OPTIONS", "/api/v1/notification", None, {"origin": "https://a.example"}
    )
    assert isinstance(answer, Response)
    headers = dict(answer.headers)
    assert answer.status == 204
    assert b"Idempotency-Key" in headers[b"access-control-allow-headers"]
    assert headers[b"access-control-allow-origin"] == b"*"


# Schemas and health


async def test_schemas_are_listed(aviso: Aviso) -> None:
    status, told = await aviso.response("GET", "/api/v1/schema")
    assert status == 200
    assert told.keys() == {"status", "schema", "event_types", "total_schemas"}
    assert told["total_schemas"] == len(told["event_types"]) == len(told["schema"]) == 6
    assert told["schema"]["product"]["identifier"]["step"] == {
        "type": "IntHandler", "required": False, "range": [0, 240],
    }  # fmt: skip
    assert "storage_policy" not in told["schema"]["latest"]


async def test_one_schema_is_told(aviso: Aviso) -> None:
    status, told = await aviso.response("GET", "/api/v1/schema/strict")
    assert status == 200
    assert told.keys() == {"status", "event_type", "schema"}
    assert told["schema"]["payload"] == {"required": True}
    status, told = await aviso.response("GET", "/api/v1/schema/Strict")
    assert status == 404
    assert told.keys() == {"status", "message", "available_types", "request_id"}
    assert told["status"] == "error"


async def test_ready_says_whether_the_store_answers(
    aviso: Aviso, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await aviso.response("GET", "/ready") == (
        200, {"status": "ready", "backend_connected": True},
    )  # fmt: skip

    async def fail(_: str) -> None:
        raise StoreUnavailable("out of order")

    monkeypatch.setattr(aviso.streams.store, "tail", fail)
    assert await aviso.response("GET", "/ready") == (
        503, {"status": "not_ready", "backend_connected": False},
    )  # fmt: skip


# Replays


async def test_a_replay_has_its_frames(aviso: Aviso) -> None:
    await numbered(aviso, 1, 2)
    answer = await aviso.ask("POST", "/api/v1/replay", ALL)
    assert isinstance(answer, Streaming)
    headers = dict(answer.headers)
    assert answer.status == 200
    assert headers[b"content-type"] == b"text/event-stream"
    assert headers[b"cache-control"] == b"no-cache"
    assert headers[b"x-accel-buffering"] == b"no"
    assert headers[b"access-control-allow-origin"] == b"*"
    sink = Collected()
    await answer.run(sink)
    started, one, two, completed, closing = sink.frames
    request_id = headers[b"x-request-id"].decode()
    assert UUID.fullmatch(request_id)
    topic = "prod.*.*.*.*.*.*.*"
    assert started.name == "replay-control"
    assert SECOND.fullmatch(started.data.pop("timestamp"))
    assert started.data == {
        "type": "replay_started", "topic": topic, "from_sequence": 0, "from_date": None,
        "batch_size": 100, "end_sequence": None, "request_id": request_id,
    }  # fmt: skip
    assert (one.name, two.name) == ("replay", "replay")
    assert [one.data["id"], two.data["id"]] == ["product@1", "product@2"]
    assert [one.data["data"]["payload"], two.data["data"]["payload"]] == [1, 2]
    assert completed.name == "replay-control"
    assert SECOND.fullmatch(completed.data.pop("timestamp"))
    assert completed.data == {"type": "replay_completed", "topic": topic}
    assert closing.name == "connection-closing"
    assert SECOND.fullmatch(closing.data.pop("timestamp"))
    assert closing.data.pop("message")
    assert closing.data == {"reason": "end_of_stream", "topic": topic, "request_id": request_id}


BOUNDS: list[tuple[dict[str, str], list[int], int | None]] = [
    ({"from_id": "0"}, [1, 2, 3, 4, 5], None),
    ({"from_id": "1"}, [1, 2, 3, 4, 5], None),
    ({"from_id": "+03"}, [3, 4, 5], None),
    ({"from_id": "5"}, [5], None),
    ({"from_id": "6"}, [], None),
    ({"from_id": "18446744073709551615"}, [], None),
    ({"from_id": "2", "to_id": "4"}, [2, 3, 4], 4),
    ({"from_id": "2", "to_id": "2"}, [2], 2),
    ({"from_id": "2", "to_id": "99"}, [2, 3, 4, 5], 5),
    ({"from_id": "0", "to_id": "0"}, [], 0),
    ({"from_date": "1969-12-31T00:00:00Z"}, [1, 2, 3, 4, 5], None),
    ({"from_date": "1000"}, [1, 2, 3, 4, 5], None),
    ({"from_date": "1001"}, [2, 3, 4, 5], None),
    ({"from_date": "1970-01-01T00:16:42"}, [3, 4, 5], None),
    ({"from_date": "1970-01-01T00:16:42.0009Z"}, [3, 4, 5], None),
    ({"from_date": "1970-01-01T00:16:42.001Z"}, [4, 5], None),
    ({"from_date": "1970-01-01 01:16:44+0100"}, [5], None),
    ({"from_date": "1005"}, [], None),
    ({"from_date": "1001", "to_date": "1003"}, [2, 3, 4], 4),
    ({"from_date": "1001", "to_date": "1970-01-01T00:16:42.999Z"}, [2, 3], 3),
    ({"from_date": "1001", "to_date": "9999"}, [2, 3, 4, 5], 5),
    ({"from_id": "0", "to_date": "999"}, [], 0),
    ({"from_date": "1003", "to_id": "4"}, [4], 4),
    ({"from_date": "1004", "to_id": "2"}, [], 2),
]
"""Bounds, what is between them, and the end that is told."""


async def test_a_replay_has_its_bounds(make: Make) -> None:
    now = 1_000_000
    aviso = await make(clock=lambda: now)
    for _ in range(5):
        await aviso.notify()
        now += 1000
    for bounds, sequences, end in BOUNDS:
        sink = await aviso.replay(**{"from_id": None, **bounds})
        assert sink.sequences() == sequences, bounds
        started = sink.frames[0].data
        assert started["end_sequence"] == end, bounds
        assert started["from_date"] == bounds.get("from_date")
        assert started["from_sequence"] == (int(bounds["from_id"]) if "from_id" in bounds else None)


async def test_a_replay_of_nothing_is_complete(aviso: Aviso) -> None:
    names = [frame.data.get("type") for frame in (await aviso.replay()).frames]
    assert names == ["replay_started", "replay_completed", None]
    sink = await aviso.replay(to_id="7")
    assert sink.frames[0].data["end_sequence"] == 0


async def test_a_replay_is_filtered(aviso: Aviso) -> None:
    await numbered(aviso, *range(10))
    for identifier, sequences in (
        ({"step": 3}, [4]),
        ({"step": {"between": [3, 5]}, "hazard": "STORM"}, [4, 5, 6]),
        ({"step": {"in": [0, 9]}}, [1, 10]),
        ({"hazard": "fire"}, []),
        ({"level": {"gt": 42.4}, "step": {"lt": 1}}, [1]),
    ):
        assert (await aviso.replay(identifier=identifier)).sequences() == sequences


@pytest.mark.parametrize(
    ("most", "limited", "batch"),
    [(1, True, 1), (4, True, 2), (4, True, 100), (5, False, 2), (5, False, 5), (6, False, 100)],
)
async def test_a_replay_has_a_limit(make: Make, most: int, limited: bool, batch: int) -> None:
    aviso = await make(aviso_replay_limit=most, aviso_batch=batch)
    await numbered(aviso, *range(5))
    sink = await aviso.replay()
    assert sink.sequences() == list(range(1, min(most, 5) + 1))
    kinds = [frame.data.get("type") for frame in sink.frames if frame.name == "replay-control"]
    assert kinds[1:] == ["notification_replay_limit_reached" if limited else "replay_completed"]
    assert sink.frames[-1].data["reason"] == "end_of_stream"
    if limited:
        told = sink.frames[-2].data
        assert told.keys() == {"type", "topic", "max_allowed", "message", "timestamp"}
        assert told["max_allowed"] == most
        watch = await aviso.watch(from_id="0")
        await asyncio.wait_for(watch.task, 120)
        assert watch.sink.frames[-1].data["reason"] == "end_of_stream"


async def test_a_watch_whose_client_takes_no_heartbeat_waits_for_room(make: Make) -> None:
    class Stalled(Collected):
        async def drain(self) -> None:
            raise TimeoutError

    aviso = await make(aviso_heartbeat=0.1)
    answer = await aviso.ask("POST", "/api/v1/watch", ALL)
    assert isinstance(answer, Streaming)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(answer.run(Stalled(room=2)), 120)


async def test_the_limit_counts_what_passes(make: Make) -> None:
    aviso = await make(aviso_replay_limit=2)
    await numbered(aviso, *range(10))
    sink = await aviso.replay(identifier={"step": {"gte": 8}})
    assert sink.sequences() == [9, 10]
    assert sink.frames[-2].data["type"] == "replay_completed"


async def test_a_replay_that_takes_too_long_ends_and_can_be_gone_on_with(make: Make) -> None:
    class Slow(Collected):
        async def drain(self) -> None:
            await asyncio.sleep(0.06)
            await super().drain()

    aviso = await make(aviso_max_duration=0.1, chunk_bytes=1024)
    await numbered(aviso, *range(20))
    got: list[int] = []
    while len(got) < 20:
        answer = await aviso.ask("POST", "/api/v1/replay", {**ALL, "from_id": str(len(got) + 1)})
        assert isinstance(answer, Streaming)
        sink = Slow()
        await answer.run(sink)
        got += sink.sequences()
        if len(got) < 20:
            assert sink.frames[-1].data["reason"] == "max_duration_reached"
            assert all(frame.data.get("type") != "replay_completed" for frame in sink.frames)
    assert got == list(range(1, 21))


async def test_a_replay_that_retention_overtakes_has_nothing_beyond_its_end(
    aviso: Aviso, monkeypatch: pytest.MonkeyPatch
) -> None:
    await numbered(aviso, *range(6))
    view = aviso.streams.view

    async def trimmed(path: str, position: int) -> View:
        if path != "aviso/prod":
            return await view(path, position)
        if position == BEGINNING:
            return await view(path, 3)
        raise OffsetTrimmed("0000000000000003_0000000000000003")

    monkeypatch.setattr(aviso.streams, "view", trimmed)
    sink = await aviso.replay(to_id="2")
    assert sink.sequences() == []
    assert sink.frames[-2].data["type"] == "replay_completed"


async def test_an_event_type_may_have_a_limit_and_a_policy_of_its_own(aviso: Aviso) -> None:
    for _ in range(5):
        await aviso.notify(event_type="capped", identifier={"name": "a"})
    sink = await aviso.replay(event_type="capped")
    assert sink.sequences() == [3, 4]
    assert sink.frames[-2].data["type"] == "notification_replay_limit_reached"


async def test_only_the_latest_of_each_topic_may_be_replayed(aviso: Aviso) -> None:
    for name in "abacb":
        await aviso.notify(event_type="latest", identifier={"name": name})
    assert (await aviso.replay(event_type="latest")).sequences() == [3, 4, 5]
    only = {"name": "a"}
    assert (await aviso.replay(event_type="latest", identifier=only)).sequences() == [3]
    assert (await aviso.replay(event_type="latest", to_id="4")).sequences() == [3, 4]


async def test_what_others_appended_is_left_out(aviso: Aviso) -> None:
    await aviso.notify()
    for foreign in (b'{"a":1}', b"[1,2,3]"):
        await aviso.streams.append("aviso/prod", Append(foreign, "application/json"))
    watch = await aviso.watch()
    await aviso.streams.append("aviso/prod", Append(b'{"b":1}', "application/json"))
    await aviso.notify()
    await watch.until(lambda sink: bool(sink.sequences()))
    assert watch.sink.sequences() == [5]
    assert (await aviso.replay()).sequences() == [1, 5]
    await watch.leave()


# Watches


async def test_a_live_watch_has_its_frames(make: Make) -> None:
    aviso = await make(aviso_max_duration=1000, aviso_heartbeat=1000)
    watch = await aviso.watch(identifier={"time": "6"})
    await aviso.notify()
    await watch.until(lambda sink: bool(sink.sequences()))
    established, beat, live = watch.sink.frames
    assert established.name == live.name == "live-notification"
    topic = "prod.*.*.0600.*.*.*.*"
    assert SECOND.fullmatch(established.data.pop("timestamp"))
    assert UUID.fullmatch(established.data.pop("request_id"))
    assert established.data == {
        "type": "connection_established", "topic": topic, "connection_will_close_in_seconds": 1000,
    }  # fmt: skip
    assert beat.name == "heartbeat"
    assert beat.data.keys() == {"timestamp", "topic"}
    assert live.data["id"] == "product@1"
    await watch.leave()


async def test_a_watch_has_heartbeats(make: Make) -> None:
    aviso = await make(aviso_heartbeat=0.01)
    watch = await aviso.watch()
    await watch.until(lambda sink: len(sink.frames) == 4)
    assert [frame.name for frame in watch.sink.frames[1:4]] == ["heartbeat"] * 3
    await watch.leave()


async def test_a_watch_that_takes_too_long_ends(make: Make) -> None:
    aviso = await make(aviso_max_duration=0.05, aviso_heartbeat=1000)
    watch = await aviso.watch()
    await asyncio.wait_for(watch.task, 120)
    _, *beats, closing = watch.sink.frames
    assert all(beat.name == "heartbeat" for beat in beats)
    assert closing.name == "connection-closing"
    assert closing.data.keys() == {"reason", "message", "timestamp", "topic", "request_id"}
    assert closing.data["reason"] == "max_duration_reached"


async def test_a_watch_goes_on_where_its_replay_ends(aviso: Aviso) -> None:
    await numbered(aviso, 1, 2)
    watch = await aviso.watch(from_id="2")
    await numbered(aviso, 3, 4)
    await watch.until(lambda sink: len(sink.sequences()) == 3)
    frames = [frame for frame in watch.sink.frames if frame.name != "heartbeat"]
    names = ["replay-control", "replay", "replay-control", "live-notification", "live-notification"]
    assert [frame.name for frame in frames] == names
    assert watch.sink.sequences() == [2, 3, 4]
    await watch.leave()


async def test_a_watch_waits_for_the_first_notification(aviso: Aviso) -> None:
    watches = [await aviso.watch(), await aviso.watch(from_id="1")]
    await numbered(aviso, 1, 2)
    for watch in watches:
        await watch.until(lambda sink: len(sink.sequences()) == 2)
        assert watch.sink.sequences("live-notification") == [1, 2]
        await watch.leave()


async def test_a_stream_that_was_made_anew_is_watched_from_its_beginning(aviso: Aviso) -> None:
    await numbered(aviso, 1, 2)
    watch = await aviso.watch()
    await numbered(aviso, 3)
    await watch.until(lambda sink: sink.sequences() == [3])
    await aviso.streams.delete("aviso/prod")
    await numbered(aviso, 4, 5)
    await watch.until(lambda sink: sink.sequences() == [3, 1, 2])
    late = await aviso.watch()
    await numbered(aviso, 6)
    for each in (watch, late):
        await each.until(lambda sink: sink.sequences()[-1:] == [3])
        await each.leave()


async def test_a_closed_stream_ends_a_watch(aviso: Aviso) -> None:
    await numbered(aviso, 1)
    watch = await aviso.watch()
    await aviso.streams.append("aviso/prod", Append(b"", close=True))
    await asyncio.wait_for(watch.task, 120)
    assert watch.sink.frames[-1].data["reason"] == "end_of_stream"
    late = await aviso.watch()
    await asyncio.wait_for(late.task, 120)
    assert late.sink.frames[-1].data["reason"] == "end_of_stream"
    status, told = await aviso.response("POST", "/api/v1/notification", PRODUCT)
    assert (status, told["code"]) == (500, "NOTIFICATION_STORAGE_FAILED")


async def test_a_server_that_stops_says_so(aviso: Aviso) -> None:
    waiting = await aviso.watch(event_type="area")
    await numbered(aviso, 1)
    watch = await aviso.watch()
    await asyncio.sleep(0.05)
    aviso.streams.drain()
    for each in (watch, waiting):
        await asyncio.wait_for(each.task, 120)
        assert each.sink.frames[-1].data["reason"] == "server_shutdown"


async def test_who_is_slow_reads_for_itself_and_misses_nothing(aviso: Aviso) -> None:
    slow, quick = await aviso.watch(room=2), await aviso.watch()
    await numbered(aviso, *range(40))
    for watch in (slow, quick):
        await watch.until(lambda sink: len(sink.sequences()) == 40)
        assert watch.sink.sequences() == list(range(1, 41))
        await watch.leave()


async def test_a_client_has_so_many_watches_at_once(make: Make) -> None:
    aviso = await make(live_connections=1, append_rate=1.0)
    watch = await aviso.watch()
    status, told = await aviso.response("POST", "/api/v1/watch", {**ALL})
    assert (status, told["code"]) == (429, "TOO_MANY_REQUESTS")
    await watch.leave()
    await (await aviso.watch()).leave()
    await aviso.notify()
    await aviso.notify()
    answer = await aviso.ask("POST", "/api/v1/notification", PRODUCT)
    assert isinstance(answer, Response)
    assert answer.status == 429
    assert dict(answer.headers)[b"retry-after"] == b"1"


# Administration


async def test_one_notification_is_deleted(aviso: Aviso) -> None:
    await numbered(aviso, 1, 2, 3)
    status, told = await aviso.response("DELETE", "/api/v1/admin/notification/product@2")
    assert status == 200
    assert list(told) == ["success", "message", "notification_id", "request_id"]
    assert (told["success"], told["notification_id"]) == (True, "product@2")
    assert (await aviso.replay()).sequences() == [1, 3]
    status, told = await aviso.response("DELETE", "/api/v1/admin/notification/product@2")
    assert (status, told["success"]) == (404, False)
    await numbered(aviso, 4)
    assert (await aviso.replay()).sequences() == [1, 3, 4]


@pytest.mark.parametrize(
    ("given", "status"),
    [("PROD@1", 200), ("Product@1", 200), ("%20product@1%20", 200), ("product@01", 200),
     ("product@2", 404), ("other@1", 404), ("area@1", 404), ("product", 400), ("product@", 400),
     ("@1", 400), ("product@0", 400), ("product@-1", 400), ("product@x", 400),
     ("product@1@1", 400), ("product@18446744073709551616", 400)],
)  # fmt: skip
async def test_a_notification_to_delete_is_named(aviso: Aviso, given: str, status: int) -> None:
    await aviso.notify()
    answer = await aviso.response("DELETE", f"/api/v1/admin/notification/{given}")
    assert answer[0] == status
    assert answer[1]["success"] is (status == 200)


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("name", "status"), [("product", 200), ("PROD", 200), ("prod", 200), ("other", 404), ("", 404)]
)
async def test_a_stream_is_wiped(aviso: Aviso, name: str, status: int) -> None:
    await numbered(aviso, 1, 2)
    await aviso.notify(event_type="area", identifier={"name": "x", "polygon": SQUARE})
    fields = {"stream_name": name}
    answer = await aviso.response("DELETE", "/api/v1/admin/wipe/stream", fields, JSON)
    assert answer[0] == status
    assert answer[1].keys() == {"success", "message", "request_id"}
    await numbered(aviso, 3)
    assert (await aviso.replay()).sequences() == ([3] if status == 200 else [1, 2, 3])
    assert (await aviso.replay(event_type="area")).sequences() == [1]


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({"stream_name": "prod"}, {}),
        (b"{", JSON),
        ({}, JSON),
        ({"stream_name": 5}, JSON),
        ([], JSON),
    ],
)
async def test_a_wipe_needs_json(aviso: Aviso, fields: object, headers: dict[str, str]) -> None:
    answer = await aviso.ask("DELETE", "/api/v1/admin/wipe/stream", fields, headers)
    assert isinstance(answer, Response)
    assert answer.status == 400
    assert dict(answer.headers)[b"content-type"].startswith(b"text/plain")


async def test_everything_is_wiped_and_numbers_go_on(make: Make) -> None:
    aviso = await make()
    await numbered(aviso, 1, 2)
    await aviso.notify(event_type="area", identifier={"name": "x", "polygon": SQUARE})
    watch = await aviso.watch()
    status, told = await aviso.response("DELETE", "/api/v1/admin/wipe/all")
    assert (status, told["success"]) == (200, True)
    assert (await aviso.replay()).sequences() == []
    assert (await aviso.replay(event_type="area")).sequences() == []
    await numbered(aviso, 3)
    await watch.until(lambda sink: sink.sequences() == [3])
    await watch.leave()
    aviso = await make()
    assert (await aviso.replay()).sequences() == [3]


# A server that only reads


async def test_a_server_that_only_reads_has_no_other_routes(make: Make) -> None:
    aviso = await make()
    await numbered(aviso, 1)
    aviso = await make(read_only=True)
    assert (await aviso.replay()).sequences() == [1]
    for method, path in (("POST", "notification"), ("DELETE", "admin/wipe/all")):
        answer = await aviso.ask(method, f"/api/v1/{path}", PRODUCT)
        assert isinstance(answer, Response)
        assert answer.status == 404


async def test_a_server_that_only_reads_leaves_an_expired_stream_alone(make: Make) -> None:
    aviso = await make()
    await aviso.streams.create("aviso/prod", Create(content_type="application/json", ttl=60))
    await numbered(aviso, 1)
    aviso = await make(clock=lambda: system_clock() + 3_600_000, read_only=True)
    sink = await aviso.replay()
    assert sink.sequences() == []
    assert sink.frames[-2].data["type"] == "replay_completed"
    watch = await aviso.watch()
    assert watch.sink.frames[0].data["type"] == "connection_established"
    assert not watch.task.done()
    await watch.leave()
