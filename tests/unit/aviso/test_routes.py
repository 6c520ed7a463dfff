"""The routes: responses, errors, and all the frames of event streams."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from urllib.parse import unquote

import pytest

from tailrace.clock import system_clock
from tailrace.errors import OffsetTrimmed, StoreUnavailable
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.offsets import BEGINNING
from tailrace.protocols.aviso.error_codes import LABELS
from tailrace.streams import View
from tailrace.web.messages import Response, Streaming
from tests.support.aviso import IDENTIFIER, SQUARE, Aviso, CollectingSink, StartAviso, events

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
SECOND = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
PRODUCT = {"event_type": "product", "identifier": IDENTIFIER}
ALL: dict[str, Any] = {"event_type": "product", "identifier": {}, "from_id": "0"}


async def numbered(aviso: Aviso, *steps: int) -> None:
    for step in steps:
        await aviso.notify(identifier={**IDENTIFIER, "step": step}, payload=step)


# Publishing


async def test_a_notification_is_acknowledged(aviso: Aviso) -> None:
    answer = await aviso.send("POST", "/api/v1/notification", PRODUCT)
    assert isinstance(answer, Response)
    body = json.loads(answer.body)
    assert answer.status == 200
    assert list(body) == ["status", "request_id", "processed_at"]
    assert body["status"] == "success"
    assert UUID.fullmatch(body["request_id"])
    assert SECOND.fullmatch(body["processed_at"])
    assert (b"x-request-id", body["request_id"].encode()) in answer.headers


async def test_the_content_type_of_a_notification_does_not_matter(aviso: Aviso) -> None:
    for kind in ("text/plain", "application/json", ""):
        headers = {"content-type": kind}
        assert (await aviso.request("POST", "/api/v1/notification", PRODUCT, headers))[0] == 200


@pytest.mark.parametrize(
    ("path", "fields", "status", "code"),
    [
        ("notification", {**PRODUCT, "event_type": "x"}, 400, "UNKNOWN_EVENT_TYPE"),
        ("notification", {**PRODUCT, "identifier": {}}, 400, "INVALID_NOTIFICATION_REQUEST"),
        ("watch", b"", 400, "INVALID_JSON"),
        ("replay", {"event_type": "product", "identifier": {}}, 400, "INVALID_REPLAY_REQUEST"),
    ],
)
async def test_errors_have_a_code_and_the_request_id(
    aviso: Aviso, path: str, fields: object, status: int, code: str
) -> None:
    answer = await aviso.send("POST", f"/api/v1/{path}", fields, {"x-request-id": "mine"})
    assert isinstance(answer, Response)
    body = json.loads(answer.body)
    assert (answer.status, body["code"]) == (status, code)
    assert list(body) == sorted(body)
    assert UUID.fullmatch(body["request_id"])
    assert dict(answer.headers)[b"x-request-id"].decode() == body["request_id"]
    assert ("details" in body) == (code not in LABELS)


async def test_an_idempotency_key_makes_retries_safe(aviso: Aviso) -> None:
    for key in ("one", "one", "two", "one"):
        await aviso.notify({"idempotency-key": key})
    assert (await aviso.replay()).sequences() == [1, 2]
    await aviso.notify()
    await aviso.notify()
    assert (await aviso.replay()).sequences() == [1, 2, 3, 4]


@pytest.mark.parametrize("key", ["", "a b", "x" * 257, "é"])
async def test_invalid_idempotency_keys_are_refused(aviso: Aviso, key: str) -> None:
    headers = {"idempotency-key": key}
    status, body = await aviso.request("POST", "/api/v1/notification", PRODUCT, headers)
    assert (status, body["code"]) == (400, "INVALID_NOTIFICATION_REQUEST")


async def test_bodies_are_limited_in_size(aviso: Aviso) -> None:
    for size, status in ((100_000, 200), (262_144, 413)):
        answer = await aviso.send(
            "POST", "/api/v1/notification", {**PRODUCT, "payload": "x" * size}
        )
        assert isinstance(answer, Response)
        assert answer.status == status


async def test_failures_of_the_store_are_reported(
    aviso: Aviso, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailable("out of order")

    monkeypatch.setattr(aviso.streams, "append", fail)
    status, body = await aviso.request("POST", "/api/v1/notification", PRODUCT)
    assert (status, body["code"]) == (500, "NOTIFICATION_STORAGE_FAILED")
    assert body["details"] == "out of order"
    monkeypatch.setattr(aviso.streams, "find", fail)
    status, body = await aviso.request("POST", "/api/v1/replay", ALL)
    assert (status, body["code"]) == (500, "SSE_STREAM_INITIALIZATION_FAILED")
    assert body["topic"] == "prod.*.*.*.*.*.*.*"


async def test_notifications_are_a_durable_stream(aviso: Aviso) -> None:
    await numbered(aviso, 1, 2)
    view = await aviso.streams.view("aviso/prod", 0)
    assert [json.loads(body)["data"]["payload"] for body in view.bodies] == [1, 2]


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "notification"), ("PUT", "watch"), ("POST", "schema"), ("HEAD", "schema"),
     ("GET", "nothing"), ("POST", "notification/"), ("GET", ""), ("POST", "admin/wipe/all"),
     ("DELETE", "admin/nothing"), ("DELETE", "admin/notification/"), ("GET", "schema/")],
)  # fmt: skip
async def test_unknown_routes_are_not_found(aviso: Aviso, method: str, path: str) -> None:
    answer = await aviso.send(method, f"/api/v1/{path}")
    assert isinstance(answer, Response)
    assert (answer.status, answer.body) == (404, b"")
    assert UUID.fullmatch(dict(answer.headers)[b"x-request-id"].decode())


async def test_preflight_requests_of_other_origins_are_allowed(aviso: Aviso) -> None:
    answer = await aviso.send(
        "OPTIONS", "/api/v1/notification", None, {"origin": "https://a.example"}
    )
    assert isinstance(answer, Response)
    headers = dict(answer.headers)
    assert answer.status == 204
    assert b"Idempotency-Key" in headers[b"access-control-allow-headers"]
    assert headers[b"access-control-allow-origin"] == b"*"


# Schemas and health


async def test_schemas_are_listed(aviso: Aviso) -> None:
    status, body = await aviso.request("GET", "/api/v1/schema")
    assert status == 200
    assert body.keys() == {"status", "schema", "event_types", "total_schemas"}
    assert body["total_schemas"] == len(body["event_types"]) == len(body["schema"]) == 6
    assert body["schema"]["product"]["identifier"]["step"] == {
        "type": "IntHandler", "required": False, "range": [0, 240],
    }  # fmt: skip
    assert "storage_policy" not in body["schema"]["latest"]


async def test_one_schema_is_returned(aviso: Aviso) -> None:
    status, body = await aviso.request("GET", "/api/v1/schema/strict")
    assert status == 200
    assert body.keys() == {"status", "event_type", "schema"}
    assert body["schema"]["payload"] == {"required": True}
    status, body = await aviso.request("GET", "/api/v1/schema/Strict")
    assert status == 404
    assert body.keys() == {"status", "message", "available_types", "request_id"}
    assert body["status"] == "error"


async def test_ready_reports_whether_the_store_responds(
    aviso: Aviso, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await aviso.request("GET", "/ready") == (
        200, {"status": "ready", "backend_connected": True},
    )  # fmt: skip

    async def fail() -> None:
        raise StoreUnavailable("out of order")

    monkeypatch.setattr("tailrace.web.health.HEALTH_SECONDS", 0)
    monkeypatch.setattr(aviso.streams.store, "probe", fail)
    assert await aviso.request("GET", "/ready") == (
        503, {"status": "not_ready", "backend_connected": False},
    )  # fmt: skip


# Replays


async def test_the_frames_of_a_replay(aviso: Aviso) -> None:
    await numbered(aviso, 1, 2)
    answer = await aviso.send("POST", "/api/v1/replay", ALL)
    assert isinstance(answer, Streaming)
    headers = dict(answer.headers)
    assert answer.status == 200
    assert headers[b"content-type"] == b"text/event-stream"
    assert headers[b"cache-control"] == b"no-cache"
    assert headers[b"x-accel-buffering"] == b"no"
    assert headers[b"access-control-allow-origin"] == b"*"
    sink = CollectingSink()
    await answer.run(sink)
    started, one, two, completed, closing = sink.frames
    request_id = headers[b"x-request-id"].decode()
    assert UUID.fullmatch(request_id)
    topic = "prod.*.*.*.*.*.*.*"
    assert started.name == "replay-control"
    assert SECOND.fullmatch(started.data.pop("timestamp"))
    assert started.data == {
        "type": "replay_started", "topic": topic, "from_sequence": 0, "from_date": None,
        "to_date": None, "batch_size": 100, "end_sequence": None, "request_id": request_id,
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
    ({"from_date": "1002"}, [3, 4, 5], None),
    ({"from_date": "1970-01-01T00:16:42.0009Z"}, [3, 4, 5], None),
    ({"from_date": "1970-01-01T00:16:42.001Z"}, [4, 5], None),
    ({"from_date": "1005"}, [], None),
    ({"from_date": "1001", "to_date": "1003"}, [2, 3, 4], 4),
    ({"from_date": "1001", "to_date": "1970-01-01T00:16:42.999Z"}, [2, 3], 3),
    ({"from_date": "1001", "to_date": "9999"}, [2, 3, 4, 5], 5),
    ({"from_id": "0", "to_date": "999"}, [], 0),
    ({"from_date": "1003", "to_id": "4"}, [4], 4),
    ({"from_date": "1004", "to_id": "2"}, [], 2),
]
"""Bounds, the sequences between them, and the reported end."""


async def test_replays_respect_their_bounds(start: StartAviso) -> None:
    now = 1_000_000
    aviso = await start(clock=lambda: now)
    for _ in range(5):
        await aviso.notify()
        now += 1000
    for bounds, sequences, end in BOUNDS:
        sink = await aviso.replay(**{"from_id": None, **bounds})
        assert sink.sequences() == sequences, bounds
        started = sink.frames[0].data
        assert started["end_sequence"] == end, bounds
        assert started["from_sequence"] == (int(bounds["from_id"]) if "from_id" in bounds else None)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1000", "1970-01-01T00:16:40Z"),
        ("  1970-01-01 02:16:42.999+0200", "1970-01-01T00:16:42Z"),
        ("1970-01-01T00:16:42.25", "1970-01-01T00:16:42Z"),
        ("1234567890123", "2009-02-13T23:31:30Z"),
    ],
)
async def test_a_replay_begins_with_its_dates_in_utc(aviso: Aviso, text: str, shown: str) -> None:
    started = (await aviso.replay(from_id=None, from_date=text, to_date=text)).frames[0].data
    assert (started["from_date"], started["to_date"]) == (shown, shown)


async def test_an_empty_replay_completes(aviso: Aviso) -> None:
    names = [frame.data.get("type") for frame in (await aviso.replay()).frames]
    assert names == ["replay_started", "replay_completed", None]
    sink = await aviso.replay(to_id="7")
    assert sink.frames[0].data["end_sequence"] == 0


async def test_replays_are_filtered(aviso: Aviso) -> None:
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
    ("limit", "is_limited", "batch"),
    [(1, True, 1), (4, True, 2), (4, True, 100), (5, False, 2), (5, False, 5), (6, False, 100)],
)
async def test_replays_are_limited(
    start: StartAviso, limit: int, is_limited: bool, batch: int
) -> None:
    aviso = await start(aviso_replay_limit=limit, aviso_batch=batch)
    await numbered(aviso, *range(5))
    sink = await aviso.replay()
    assert sink.sequences() == list(range(1, min(limit, 5) + 1))
    kinds = [frame.data.get("type") for frame in sink.frames if frame.name == "replay-control"]
    assert kinds[1:] == ["notification_replay_limit_reached" if is_limited else "replay_completed"]
    assert sink.frames[-1].data["reason"] == "end_of_stream"
    if is_limited:
        body = sink.frames[-2].data
        assert body.keys() == {"type", "topic", "max_allowed", "message", "timestamp"}
        assert body["max_allowed"] == limit
        watch = await aviso.watch(from_id="0")
        await asyncio.wait_for(watch.task, 120)
        assert watch.sink.frames[-1].data["reason"] == "end_of_stream"


async def test_a_heartbeat_that_fills_the_sink_waits_for_it_to_drain(
    start: StartAviso,
) -> None:
    class Stalled(CollectingSink):
        async def drain(self) -> None:
            raise TimeoutError

    aviso = await start(aviso_heartbeat=0.1)
    answer = await aviso.send("POST", "/api/v1/watch", ALL)
    assert isinstance(answer, Streaming)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(answer.run(Stalled(capacity=2)), 120)


async def test_the_limit_counts_matching_notifications(start: StartAviso) -> None:
    aviso = await start(aviso_replay_limit=2)
    await numbered(aviso, *range(10))
    sink = await aviso.replay(identifier={"step": {"gte": 8}})
    assert sink.sequences() == [9, 10]
    assert sink.frames[-2].data["type"] == "replay_completed"


async def test_a_replay_that_reaches_its_maximum_duration_can_be_continued(
    start: StartAviso,
) -> None:
    class Slow(CollectingSink):
        async def drain(self) -> None:
            await asyncio.sleep(0.06)
            await super().drain()

    aviso = await start(aviso_max_duration=0.1, chunk_bytes=1024)
    await numbered(aviso, *range(20))
    got: list[int] = []
    while len(got) < 20:
        answer = await aviso.send("POST", "/api/v1/replay", {**ALL, "from_id": str(len(got) + 1)})
        assert isinstance(answer, Streaming)
        sink = Slow()
        await answer.run(sink)
        got += sink.sequences()
        if len(got) < 20:
            assert sink.frames[-1].data["reason"] == "max_duration_reached"
            assert all(frame.data.get("type") != "replay_completed" for frame in sink.frames)
    assert got == list(range(1, 21))


async def test_a_replay_overtaken_by_retention_stops_at_its_end(
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


async def test_an_event_type_may_have_its_own_limit_and_policy(aviso: Aviso) -> None:
    for _ in range(5):
        await aviso.notify(event_type="capped", identifier={"name": "a"})
    sink = await aviso.replay(event_type="capped")
    assert sink.sequences() == [3, 4]
    assert sink.frames[-2].data["type"] == "notification_replay_limit_reached"


async def test_a_policy_may_replay_only_the_latest_of_each_topic(aviso: Aviso) -> None:
    for name in "abacb":
        await aviso.notify(event_type="latest", identifier={"name": name})
    assert (await aviso.replay(event_type="latest")).sequences() == [3, 4, 5]
    only = {"name": "a"}
    assert (await aviso.replay(event_type="latest", identifier=only)).sequences() == [3]
    assert (await aviso.replay(event_type="latest", to_id="4")).sequences() == [3, 4]


async def test_other_messages_in_the_stream_are_skipped(aviso: Aviso) -> None:
    await aviso.notify()
    for foreign in (b'{"a":1}', b"[1,2,3]"):
        await aviso.streams.append("aviso/prod", Append(foreign, "application/json"))
    watch = await aviso.watch()
    await aviso.streams.append("aviso/prod", Append(b'{"b":1}', "application/json"))
    await aviso.notify()
    await watch.until(lambda sink: bool(sink.sequences()))
    # Each message counts, also those of an array.
    assert watch.sink.sequences() == [7]
    assert (await aviso.replay()).sequences() == [1, 7]
    await watch.leave()


# Watches


async def test_the_frames_of_a_live_watch(start: StartAviso) -> None:
    aviso = await start(aviso_max_duration=1000, aviso_heartbeat=1000)
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


async def test_a_watch_sends_heartbeats(start: StartAviso) -> None:
    aviso = await start(aviso_heartbeat=0.01)
    watch = await aviso.watch()
    await watch.until(lambda sink: len(sink.frames) == 4)
    assert [frame.name for frame in watch.sink.frames[1:4]] == ["heartbeat"] * 3
    await watch.leave()


async def test_a_watch_ends_after_its_maximum_duration(start: StartAviso) -> None:
    aviso = await start(aviso_max_duration=0.05, aviso_heartbeat=1000)
    watch = await aviso.watch()
    await asyncio.wait_for(watch.task, 120)
    _, *beats, closing = watch.sink.frames
    assert all(beat.name == "heartbeat" for beat in beats)
    assert closing.name == "connection-closing"
    assert closing.data.keys() == {"reason", "message", "timestamp", "topic", "request_id"}
    assert closing.data["reason"] == "max_duration_reached"


async def test_a_watch_continues_live_after_its_replay(aviso: Aviso) -> None:
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


async def test_a_recreated_stream_is_watched_from_its_beginning(aviso: Aviso) -> None:
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
    status, body = await aviso.request("POST", "/api/v1/notification", PRODUCT)
    assert (status, body["code"]) == (500, "NOTIFICATION_STORAGE_FAILED")


async def test_watches_end_when_the_server_shuts_down(aviso: Aviso) -> None:
    waiting = await aviso.watch(event_type="area")
    await numbered(aviso, 1)
    watch = await aviso.watch()
    await asyncio.sleep(0.05)
    aviso.streams.drain()
    for each in (watch, waiting):
        await asyncio.wait_for(each.task, 120)
        assert each.sink.frames[-1].data["reason"] == "server_shutdown"


async def test_a_slow_client_misses_nothing(aviso: Aviso) -> None:
    slow, quick = await aviso.watch(capacity=2), await aviso.watch()
    await numbered(aviso, *range(40))
    for watch in (slow, quick):
        await watch.until(lambda sink: len(sink.sequences()) == 40)
        assert watch.sink.sequences() == list(range(1, 41))
        await watch.leave()


async def test_watches_and_notifications_are_limited_per_client(start: StartAviso) -> None:
    aviso = await start(live_connections=1, append_rate=1.0)
    watch = await aviso.watch()
    status, body = await aviso.request("POST", "/api/v1/watch", {**ALL})
    assert (status, body["code"]) == (429, "TOO_MANY_REQUESTS")
    await watch.leave()
    await (await aviso.watch()).leave()
    await aviso.notify()
    await aviso.notify()
    answer = await aviso.send("POST", "/api/v1/notification", PRODUCT)
    assert isinstance(answer, Response)
    assert answer.status == 429
    assert dict(answer.headers)[b"retry-after"] == b"1"


# Administration


async def test_one_notification_is_deleted(aviso: Aviso) -> None:
    await numbered(aviso, 1, 2, 3)
    status, body = await aviso.request("DELETE", "/api/v1/admin/notification/product@2")
    assert status == 200
    assert list(body) == ["success", "message", "notification_id", "request_id"]
    assert (body["success"], body["notification_id"]) == (True, "product@2")
    assert body["message"] == "Notification deleted"
    assert (await aviso.replay()).sequences() == [1, 3]
    status, body = await aviso.request("DELETE", "/api/v1/admin/notification/product@2")
    assert (status, body["success"]) == (404, False)
    await numbered(aviso, 4)
    assert (await aviso.replay()).sequences() == [1, 3, 4]


@pytest.mark.parametrize(
    ("notification_id", "status", "message"),
    [
        *[
            (each, 200, "Notification deleted")
            for each in ("PROD@1", "Product@1", "%20product@1%20", "product@+01")
        ],
        *[
            (each, 404, "Notification not found")
            for each in ("product@2", "other@1", "area@1", "product@18446744073709551615")
        ],
        *[
            (each, 400, "notification_id must be in '<stream>@<sequence>' format")
            for each in ("product", "product@", "@1", "%20")
        ],
        *[
            (each, 400, "notification_id sequence must be a positive integer")
            for each in ("product@-1", "product@x", "product@1@1", "product@18446744073709551616")
        ],
        ("product@0", 400, "notification_id sequence must be greater than zero"),
    ],
)
async def test_a_deletion_names_the_event_type_and_the_sequence(
    aviso: Aviso, notification_id: str, status: int, message: str
) -> None:
    await aviso.notify()
    answer = await aviso.request("DELETE", f"/api/v1/admin/notification/{notification_id}")
    assert answer[0] == status
    assert answer[1]["success"] is (status == 200)
    assert answer[1]["message"] == message
    assert answer[1]["notification_id"] == unquote(notification_id)


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("name", "status"), [("product", 200), ("PROD", 200), ("prod", 200), ("other", 404), ("", 404)]
)
async def test_a_stream_is_wiped(aviso: Aviso, name: str, status: int) -> None:
    await numbered(aviso, 1, 2)
    await aviso.notify(event_type="area", identifier={"name": "x", "polygon": SQUARE})
    fields = {"stream_name": name}
    answer = await aviso.request("DELETE", "/api/v1/admin/wipe/stream", fields, JSON)
    assert answer[0] == status
    assert list(answer[1]) == ["success", "message", "request_id"]
    assert answer[1]["message"] == (
        f"Successfully wiped stream: {name}" if status == 200
        else f"Stream not found: {name}. Known event types: {', '.join(sorted(events()))}"
    )  # fmt: skip
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
    answer = await aviso.send("DELETE", "/api/v1/admin/wipe/stream", fields, headers)
    assert isinstance(answer, Response)
    assert answer.status == 400
    assert dict(answer.headers)[b"content-type"].startswith(b"text/plain")


async def test_failures_of_deletions_are_reported(
    aviso: Aviso, monkeypatch: pytest.MonkeyPatch
) -> None:
    await aviso.notify()

    async def fail(*_: object) -> None:
        raise StoreUnavailable("out of order")

    monkeypatch.setattr(aviso.streams, "append", fail)
    status, body = await aviso.request("DELETE", "/api/v1/admin/notification/product@1")
    assert (status, body["message"]) == (500, "Failed to delete notification: out of order")
    fields = {"stream_name": "product"}
    status, body = await aviso.request("DELETE", "/api/v1/admin/wipe/stream", fields, JSON)
    assert (status, body["message"]) == (500, "Failed to wipe stream: out of order")
    # As in aviso-server, one stream that fails does not make the whole wipe a failure.
    assert (await aviso.request("DELETE", "/api/v1/admin/wipe/all"))[0] == 200


async def test_wiping_everything_keeps_the_sequences_ascending(start: StartAviso) -> None:
    aviso = await start()
    await numbered(aviso, 1, 2)
    await aviso.notify(event_type="area", identifier={"name": "x", "polygon": SQUARE})
    watch = await aviso.watch()
    status, body = await aviso.request("DELETE", "/api/v1/admin/wipe/all")
    assert (status, body["success"]) == (200, True)
    assert body["message"] == "Successfully wiped all data"
    assert (await aviso.replay()).sequences() == []
    assert (await aviso.replay(event_type="area")).sequences() == []
    await numbered(aviso, 3)
    await watch.until(lambda sink: sink.sequences() == [3])
    await watch.leave()
    aviso = await start()
    assert (await aviso.replay()).sequences() == [3]


# Read-only servers


async def test_a_read_only_server_has_no_routes_for_writing(start: StartAviso) -> None:
    aviso = await start()
    await numbered(aviso, 1)
    aviso = await start(read_only=True)
    assert (await aviso.replay()).sequences() == [1]
    for method, path in (("POST", "notification"), ("DELETE", "admin/wipe/all")):
        answer = await aviso.send(method, f"/api/v1/{path}", PRODUCT)
        assert isinstance(answer, Response)
        assert answer.status == 404


async def test_a_read_only_server_does_not_delete_expired_streams(start: StartAviso) -> None:
    aviso = await start()
    await aviso.streams.create("aviso/prod", Create(content_type="application/json", ttl=60))
    await numbered(aviso, 1)
    aviso = await start(clock=lambda: system_clock() + 3_600_000, read_only=True)
    sink = await aviso.replay()
    assert sink.sequences() == []
    assert sink.frames[-2].data["type"] == "replay_completed"
    watch = await aviso.watch()
    assert watch.sink.frames[0].data["type"] == "connection_established"
    assert not watch.task.done()
    await watch.leave()
