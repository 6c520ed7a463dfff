"""The stored form of notifications, and the frames that clients receive."""

from __future__ import annotations

import json

import orjson
import pytest

from tailrace.limits import AVISO_BODY_BYTES, AVISO_EVENT_BYTES
from tailrace.protocols.aviso.envelope import Notification, Renderer, encode
from tailrace.protocols.aviso.error_codes import RequestKind
from tailrace.protocols.aviso.request_body import parse_notification
from tests.support.aviso import IDENTIFIER, events, parse, parse_frames

NOON = 1_769_860_800_000


def stored(event_type: str = "product", **fields: object) -> bytes:
    fields = {"event_type": event_type, "identifier": IDENTIFIER, **fields}
    sent = parse(RequestKind.NOTIFICATION, **fields)
    return encode(parse_notification(sent), "some-id", "https://here.example", NOON)


def test_a_notification_is_stored_as_a_cloud_event() -> None:
    assert json.loads(stored(payload={"b": 1, "a": [None]})) == {
        "subject": "prod.FOO.20260131.0600.storm.0001.12.42%2E5",
        "specversion": "1.0",
        "id": "some-id",
        "source": "https://here.example",
        "type": "int.ecmwf.aviso.product",
        "time": "2026-01-31T12:00:00Z",
        "datacontenttype": "application/json",
        "data": {
            "identifier": {
                "destination": "FOO",
                "date": "20260131",
                "time": "0600",
                "hazard": "storm",
                "expver": "0001",
                "step": "12",
                "level": "42.5",
            },
            "payload": {"a": [None], "b": 1},
        },
    }


@pytest.mark.parametrize(
    "shape", [" (0,0, 0,10, 10.50,1e1, 0,0) ", [[0, 0], [0, 10], [10.5, 10], [0, 0]]]
)
def test_a_polygon_is_stored_as_pairs_of_floats(shape: object) -> None:
    raw = stored("area", identifier={"name": "x", "polygon": shape})
    assert b'"identifier":{"name":"x","polygon":[[0.0,0.0],[0.0,10.0],[10.5,10.0],' in raw
    assert json.loads(raw)["spatialbbox"] == "0.0,0.0,10.5,10.0"


def test_the_frame_of_a_notification_has_its_cloud_event() -> None:
    raw = stored(payload={"b": 1, "a": '"\n\u2028é'})
    notification = Notification.parse(raw)
    assert notification is not None
    frame = Renderer(events()["product"], "https://now.example").frame(b"replay", 7, notification)
    assert frame.count(b"\n") == 3
    (event,) = parse_frames(frame)
    assert event.name == "replay"
    assert event.data == {
        "specversion": "1.0",
        "id": "product@7",
        "type": "int.ecmwf.aviso.product",
        "source": "https://now.example",
        "dataschema": "https://now.example/schema/product",
        "datacontenttype": "application/json",
        "time": "2026-01-31T12:00:00Z",
        "data": json.loads(raw)["data"],
    }
    text = frame.partition(b"data: ")[2].strip()
    assert text == orjson.dumps(event.data, option=orjson.OPT_SORT_KEYS)


GOOD = stored()


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"5", b"{}", b'{"subject":"prod"}',
        GOOD + b"," + GOOD,
        GOOD.replace(b'"data":', b'"data":\n'),
        GOOD.replace(b'"data":', b'"data": \r'),
        GOOD[:-1] + b',"data":5}',
        GOOD[:-1] + b"}}",
        GOOD.replace(b'"identifier":{', b'"identity":{'),
        GOOD.partition(b',"data":')[0] + b',"data":5}',
        GOOD.partition(b',"data":')[0] + b',"data":{"identifier":[]}}',
        json.dumps(json.loads(GOOD)).encode(),
    ],
)  # fmt: skip
def test_other_messages_are_not_notifications(raw: bytes) -> None:
    assert Notification.parse(GOOD) is not None
    assert Notification.parse(raw) is None


def test_values_are_decoded_from_the_topic() -> None:
    identifier = {**IDENTIFIER, "destination": 'a."%\\*é'}
    notification = Notification.parse(stored(identifier=identifier))
    assert notification is not None
    fields = notification.fields(events()["product"])
    assert fields is not None
    assert fields["destination"] == 'a."%\\*é'
    assert fields["level"] == "42.5"


def test_messages_are_limited_in_size() -> None:
    numbers = [1e15] * ((AVISO_BODY_BYTES - 200) // len("1e15,"))
    assert Notification.parse(stored(payload=numbers)) is not None
    spare = AVISO_EVENT_BYTES - len(stored(payload=""))
    assert Notification.parse(stored(payload="a" * spare)) is not None
    assert Notification.parse(stored(payload="a" * (spare + 1))) is None
