"""Event types that no schema names: published, watched, replayed, deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import schemathesis

from tailrace.errors import StoreUnavailable
from tailrace.limits import AVISO_NAME_BYTES, AVISO_OPEN_FIELDS
from tailrace.log.append import Append
from tests.support.aviso import IDENTIFIER, SCHEMA, SQUARE, Aviso, StartAviso

OPEN = "notification_schema_strict: false\n"
JSON = {"content-type": "application/json"}


@pytest.fixture
async def aviso(start: StartAviso, tmp_path: Path) -> Aviso:
    """It takes event types without a schema, besides those of the test schema."""
    file = tmp_path / "open.yaml"
    file.write_text(SCHEMA.read_text() + OPEN)
    return await start(aviso_schema=str(file))


async def notify(aviso: Aviso, *identifiers: dict[str, Any], **more: Any) -> None:
    for identifier in identifiers:
        await aviso.notify(event_type="free", identifier=identifier, **more)


async def replay(aviso: Aviso, **identifier: Any) -> list[int]:
    return (await aviso.replay(event_type="free", identifier=identifier)).sequences()


async def test_a_notification_has_any_fields(aviso: Aviso) -> None:
    identifier = {"step": 12, "class": "od", "level": 1.50, "new": True, "dots": "a.b"}
    await notify(aviso, identifier, payload={"a": 1})
    sink = await aviso.replay(event_type="free", identifier={"step": "12"})
    assert sink.frames[0].data["topic"] == "free.12"
    event = sink.frames[1].data
    assert (event["id"], event["type"]) == ("free@1", "int.ecmwf.aviso.free")
    assert "dataschema" not in event
    assert event["data"] == {
        "identifier": {"class": "od", "dots": "a.b", "level": "1.5", "new": "true", "step": "12"},
        "payload": {"a": 1},
    }
    view = await aviso.streams.view("aviso/free", 0)
    assert json.loads(view.bodies[0])["subject"] == "free.od.a%2Eb.1%2E5.true.12"


async def test_a_filter_compares_fields_by_name(aviso: Aviso) -> None:
    await notify(aviso, {"a": "x", "b": "y"}, {"a": "x"}, {"b": "x"}, {}, {"a": "y", "b": "x"})
    assert await replay(aviso) == [1, 2, 3, 4, 5]
    assert await replay(aviso, a="x") == [1, 2]
    assert await replay(aviso, b="x") == [3, 5]
    assert await replay(aviso, a="x", b="y") == [1]
    assert await replay(aviso, a="*", b="x") == [3, 5]
    assert await replay(aviso, c="x") == []


async def test_messages_of_other_event_types_are_skipped(aviso: Aviso) -> None:
    await aviso.notify(event_type="other", identifier={"a": "x"})
    (foreign,) = (await aviso.streams.view("aviso/other", 0)).bodies
    await notify(aviso, {"a": "y"})
    watch = await aviso.watch(event_type="free")
    await aviso.streams.append("aviso/free", Append(foreign, "application/json"))
    await notify(aviso, {"a": "x"})
    await watch.until(lambda sink: bool(sink.sequences()))
    assert watch.sink.sequences() == [3]
    await watch.leave()
    assert await replay(aviso) == [1, 3]


async def test_polygons_and_points_are_compared_as_shapes(aviso: Aviso) -> None:
    far = [[20, 20], [20, 30], [30, 30], [20, 20]]
    await notify(aviso, {"a": "x", "polygon": SQUARE}, {"a": "x"}, {"a": "x", "polygon": far})
    await notify(aviso, {"a": "y"}, payload={"spatial_geometry": SQUARE})
    assert await replay(aviso, point="5,5") == [1, 4]
    assert await replay(aviso, point="5,5", a="x") == [1]
    assert await replay(aviso, polygon="5,5,5,40,40,40,5,5") == [1, 3]


async def test_watchers_of_different_fields_are_served_together(aviso: Aviso) -> None:
    filters: list[dict[str, Any]] = [{}, {"a": "x"}, {"b": "x"}, {"a": "x", "b": "x"}]
    watches = [await aviso.watch(event_type="free", identifier=each) for each in filters]
    await notify(aviso, {"a": "x"}, {"b": "x"}, {"a": "x", "b": "x", "c": 1}, {"a": "y"})
    expected = [[1, 2, 3, 4], [1, 3], [2, 3], [3]]
    for watch, sequences in zip(watches, expected, strict=True):
        await watch.until(lambda sink, s=sequences: sink.sequences() == s)  # type: ignore[misc]
        await watch.leave()


@pytest.mark.parametrize(
    ("name", "identifier", "reason"),
    [
        ("", {}, "must consist of letters, digits"),
        ("a.b", {}, "must consist of letters, digits"),
        ("_a", {}, "must consist of letters, digits"),
        ("é", {}, "must consist of letters, digits"),
        ("a/deleted", {}, "must consist of letters, digits"),
        ("x" * (AVISO_NAME_BYTES + 1), {}, f"at most {AVISO_NAME_BYTES} bytes"),
        ("Product", {}, "the name or the topic base of another event type"),
        ("prod", {}, "the name or the topic base of another event type"),
        ("free", {"a": {"eq": "x"}}, "field 'a'"),
        ("free", {"a": ["x"]}, "field 'a' must be a valid value: it is an array"),
        ("free", {"a": None}, "field 'a' must be a valid value: it is null"),
        ("free", {"a": ""}, "field 'a' must be a valid string: it is empty"),
        ("free", {"polygon": "0,0"}, "field 'polygon' must be a valid polygon"),
        ("free", {f"f{i}": 1 for i in range(AVISO_OPEN_FIELDS + 1)}, "at most 256 fields"),
    ],
)
async def test_invalid_requests_are_refused(
    aviso: Aviso, name: str, identifier: dict[str, Any], reason: str
) -> None:
    fields = {"event_type": name, "identifier": identifier}
    for path, code in (("notification", "NOTIFICATION"), ("watch", "WATCH")):
        status, body = await aviso.request("POST", f"/api/v1/{path}", fields)
        assert (status, body["code"]) == (400, f"INVALID_{code}_REQUEST")
        assert reason in body["message"]


async def test_event_types_of_the_schema_are_still_validated(aviso: Aviso) -> None:
    fields = {"event_type": "product", "identifier": {**IDENTIFIER, "step": "x"}}
    assert (await aviso.request("POST", "/api/v1/notification", fields))[0] == 400
    await aviso.notify()
    assert (await aviso.replay(identifier={"step": {"gt": 1}})).sequences() == [1]


async def test_a_replay_of_what_does_not_exist_is_empty_and_leaves_nothing(aviso: Aviso) -> None:
    for i in range(3):
        sink = await aviso.replay(event_type=f"nothing-{i}")
        assert sink.frames[1].data["type"] == "replay_completed"
    assert aviso.routes._event_streams.reader._deletions._cache == {}


async def test_notifications_can_be_deleted(aviso: Aviso, monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(path: str, name: str = "") -> int:
        fields = {"stream_name": name}
        return (await aviso.request("DELETE", f"/api/v1/admin/{path}", fields, JSON))[0]

    await notify(aviso, {"a": 1}, {"a": 2}, {"a": 3})
    await aviso.notify(event_type="other", identifier={})
    await aviso.notify()
    assert await send("notification/free@2") == 200
    assert await send("notification/free@2") == 404
    assert await replay(aviso) == [1, 3]
    assert await send("wipe/stream", "free") == 200
    assert await replay(aviso) == []
    for name in ("nothing", "a.b"):
        assert await send("wipe/stream", name) == 404
    await notify(aviso, {"a": 4})
    assert await send("wipe/all") == 200
    assert await replay(aviso) == []
    assert (await aviso.replay(event_type="other")).sequences() == []
    assert (await aviso.replay()).sequences() == []

    async def fail(*_: object) -> None:
        raise StoreUnavailable("out of order")

    monkeypatch.setattr(aviso.streams, "list", fail)
    status, body = await aviso.request("DELETE", "/api/v1/admin/wipe/all")
    assert (status, body["message"]) == (500, "Failed to wipe all data: out of order")


async def test_access_is_that_of_the_stream(start: StartAviso, tmp_path: Path) -> None:
    file = tmp_path / "open.yaml"
    file.write_text(OPEN)
    closed = await start(aviso_schema=str(file), secret="s" * 32, public_streams="aviso/public")
    for name, read in (("public", 200), ("free", 401)):
        fields = {"event_type": name, "identifier": {}}
        assert (await closed.send("POST", "/api/v1/notification", fields)).status == 401
        answer = await closed.send("POST", "/api/v1/replay", {**fields, "from_id": "0"})
        assert answer.status == read


@pytest.mark.parametrize(
    ("path", "event_type", "identifier", "good"),
    [
        ("notification", "free", {"a": 1, "b": "x", "polygon": SQUARE}, True),
        ("notification", "free", {"point": "0,0"}, False),
        ("notification", "free", {"a": {"eq": 1}}, False),
        ("notification", "product", {}, False),
        ("watch", "free", {"point": [0, 0]}, True),
        ("watch", "free", {"a": {"eq": 1}}, False),
    ],
)
async def test_the_openapi_document_describes_them(
    aviso: Aviso, path: str, event_type: str, identifier: dict[str, Any], good: bool
) -> None:
    _, document = await aviso.request("GET", "/api-docs/openapi.json")
    schemathesis.openapi.from_dict(document).validate()
    operation = document["paths"][f"/api/v1/{path}"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    fields = {"event_type": event_type, "identifier": identifier}
    assert jsonschema_rs.is_valid(schema, fields) is good
    assert ((await aviso.send("POST", f"/api/v1/{path}", fields)).status == 200) is good
