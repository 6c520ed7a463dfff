"""Bodies: what is wrong with them, and which mistake is told first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.protocols.aviso.errors import Operation
from tailrace.protocols.aviso.requests import (
    Start,
    parse_body,
    parse_notification,
    parse_subscription,
    refuse_point,
)
from tests.support.aviso import SQUARE, WORKING, body, events, refused

NOTIFY, WATCH, REPLAY = Operation.NOTIFICATION, Operation.WATCH, Operation.REPLAY


def code_of(raw: bytes, operation: Operation = WATCH) -> str:
    return refused(lambda: parse_body(raw, operation, events())).code


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "INVALID_JSON"),
        (b"{", "INVALID_JSON"),
        (b"nonsense", "INVALID_JSON"),
        (b'{"event_type":"\xff"}', "INVALID_JSON"),
        (b'{"event_type":NaN}', "INVALID_JSON"),
        (b'{"payload":' + b"[" * 128 + b"]" * 128 + b"}", "INVALID_JSON"),
        (b"[]", "INVALID_REQUEST_SHAPE"),
        (b"null", "INVALID_REQUEST_SHAPE"),
        (b"{}", "INVALID_REQUEST_SHAPE"),
        (b'{"event_type":"product"}', "INVALID_REQUEST_SHAPE"),
        (b'{"identifier":{}}', "INVALID_REQUEST_SHAPE"),
        (b'{"event_type":5,"identifier":{}}', "INVALID_REQUEST_SHAPE"),
        (b'{"event_type":"product","identifier":[]}', "INVALID_REQUEST_SHAPE"),
        (b'{"event_type":"product","identifier":null}', "INVALID_REQUEST_SHAPE"),
        (b'{"event_type":"product","identifier":{},"from_id":5}', "INVALID_REQUEST_SHAPE"),
        (b'{"event_type":"product","identifier":{},"from_date":5}', "INVALID_REQUEST_SHAPE"),
        (b'{"event_type":"product","identifier":{},"to_id":5}', "INVALID_REQUEST_SHAPE"),
        (b'{"event_type":5,"extra":1}', "UNKNOWN_FIELD"),
        (b'{"event_type":"product","identifier":{},"filter":{}}', "UNKNOWN_FIELD"),
        (b'{"event_type":"nothing","identifier":{}}', "UNKNOWN_EVENT_TYPE"),
        (b'{"event_type":"Product","identifier":{}}', "UNKNOWN_EVENT_TYPE"),
        (b'{"event_type":"prod","identifier":{}}', "UNKNOWN_EVENT_TYPE"),
        (b'{"event_type":"","identifier":{}}', "UNKNOWN_EVENT_TYPE"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_body_has_a_code(raw: bytes, code: str) -> None:
    for operation in Operation:
        assert code_of(raw, operation) == code


def test_brackets_in_texts_are_no_depth() -> None:
    fields = {"event_type": "product", "identifier": {}, "payload": ["[{" * 500, {"[": '\\"['}]}
    parse_body(json.dumps(fields).encode(), NOTIFY, events())


@pytest.mark.parametrize(
    ("operation", "label"),
    [(NOTIFY, "Notification"), (WATCH, "Watch"), (REPLAY, "Replay")],
)
def test_an_error_names_its_operation(operation: Operation, label: str) -> None:
    fields = refused(lambda: parse_body(b"", operation, events())).fields
    assert fields.keys() == {"code", "details", "error", "message"}
    assert fields["error"] == f"Invalid {label} Request"


def test_an_unknown_event_type_is_told_with_those_there_are() -> None:
    raw = b'{"event_type":"nothing","identifier":{}}'
    error = refused(lambda: parse_body(raw, WATCH, events()))
    assert error.status == 400
    assert error.fields.keys() == {"code", "error", "message", "configured_event_types"}
    assert error.fields["error"] == "unknown_event_type"
    assert error.fields["configured_event_types"] == sorted(events())


def test_of_two_values_under_one_key_the_last_one_counts() -> None:
    raw = b'{"event_type":"nothing","event_type":"product","identifier":{}}'
    assert parse_body(raw, WATCH, events()).event.name == "product"


# Notifications


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"extra": "x"}, "Unknown field 'extra' provided for notify operation"),
        ({"step": None}, "field 'step' must be a valid value: it is null"),
        ({"step": [1]}, "field 'step' must be a valid value: it is an array"),
        ({"step": {"eq": 1}}, "only filters take constraints"),
        ({"destination": {"eq": "x"}}, "only filters take constraints"),
        ({"step": 241}, "is not from 0 to 240"),
        ({"step": 1.5}, "field 'step' must be a valid integer"),
        ({"step": 1.0}, "field 'step' must be a valid integer"),
        ({"step": True}, "field 'step' must be a valid integer"),
        ({"level": "x"}, "field 'level' must be a valid number"),
        ({"date": "x"}, "field 'date' must be a valid date"),
        ({"time": "25"}, "field 'time' must be a valid time"),
        ({"hazard": "x"}, "field 'hazard' must be a valid value"),
        ({"destination": ""}, "field 'destination' must be a valid string"),
        ({"polygon": SQUARE}, "Unknown field 'polygon'"),
    ],
)
def test_a_notification_is_refused_with_the_reason(change: dict[str, Any], why: str) -> None:
    sent = body(NOTIFY, event_type="product", identifier={**WORKING, **change})
    error = refused(lambda: parse_notification(sent))
    assert (error.status, error.code) == (400, "INVALID_NOTIFICATION_REQUEST")
    assert why in error.fields["message"]


@pytest.mark.parametrize("missing", WORKING)
def test_a_notification_has_every_field(missing: str) -> None:
    identifier = {name: value for name, value in WORKING.items() if name != missing}
    sent = body(NOTIFY, event_type="product", identifier=identifier)
    assert f"Required field '{missing}' missing" in str(refused(lambda: parse_notification(sent)))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, ("FOO", "20260131", "0600", "storm", "0001", "12", "42.5")),
        ({"step": "+012"}, ("FOO", "20260131", "0600", "storm", "0001", "12", "42.5")),
        ({"level": 100}, ("FOO", "20260131", "0600", "storm", "0001", "12", "100")),
        ({"level": 1e2}, ("FOO", "20260131", "0600", "storm", "0001", "12", "100")),
        ({"destination": 5}, ("5", "20260131", "0600", "storm", "0001", "12", "42.5")),
        ({"destination": 5.0}, ("5.0", "20260131", "0600", "storm", "0001", "12", "42.5")),
        ({"destination": 1e2}, ("100.0", "20260131", "0600", "storm", "0001", "12", "42.5")),
        ({"destination": True}, ("true", "20260131", "0600", "storm", "0001", "12", "42.5")),
        ({"time": 1200}, ("FOO", "20260131", "1200", "storm", "0001", "12", "42.5")),
        ({"expver": ""}, ("FOO", "20260131", "0600", "storm", "0001", "12", "42.5")),
        ({"destination": "a.b"}, ("a.b", "20260131", "0600", "storm", "0001", "12", "42.5")),
        ({"destination": "*"}, ("*", "20260131", "0600", "storm", "0001", "12", "42.5")),
    ],
)
def test_a_notification_is_kept_in_its_canonical_form(
    given: dict[str, Any], kept: tuple[str, ...]
) -> None:
    sent = body(NOTIFY, event_type="product", identifier={**WORKING, **given})
    assert parse_notification(sent).values == kept


def test_a_point_is_no_part_of_a_notification() -> None:
    for event_type in ("product", "area"):
        sent = body(NOTIFY, event_type=event_type, identifier={"point": "0,0"})
        assert refused(lambda sent=sent: refuse_point(sent)).status == 400  # type: ignore[misc]


@pytest.mark.parametrize("payload", [{}, {"payload": None}])
def test_a_payload_that_is_needed_must_be_there(payload: dict[str, Any]) -> None:
    identifier = {"name": "a", "number": 1, "polygon": SQUARE}
    sent = body(NOTIFY, event_type="strict", identifier=identifier, **payload)
    assert "payload is required" in str(refused(lambda: parse_notification(sent)))


@pytest.mark.parametrize("payload", [0, False, "", [], {}])
def test_a_payload_may_be_anything_but_null(payload: object) -> None:
    identifier = {"name": "a", "number": 1, "polygon": SQUARE}
    sent = body(NOTIFY, event_type="strict", identifier=identifier, payload=payload)
    assert parse_notification(sent).payload == payload


def test_bounds_mean_nothing_to_a_notification() -> None:
    refuse_point(body(NOTIFY, event_type="product", identifier={}, from_id="x", from_date="y"))
    for key in ("to_id", "to_date"):
        sent = body(NOTIFY, event_type="product", identifier={}, **{key: "5"})
        assert "for replay only" in str(refused(lambda sent=sent: refuse_point(sent)))  # type: ignore[misc]


# Filters


@pytest.mark.parametrize(
    ("event_type", "identifier", "why"),
    [
        ("product", {"extra": 1}, "Unknown field 'extra' provided for watch operation"),
        ("product", {"polygon": SQUARE}, "Unknown field 'polygon'"),
        ("product", {"step": 500}, "is not from 0 to 240"),
        ("product", {"step": {"gt": 500}}, "is not from 0 to 240"),
        ("product", {"step": {}}, "exactly one of"),
        ("product", {"date": {"eq": "20260101"}}, "takes no constraints"),
        ("product", {"step": "*"}, "field 'step' must be a valid integer"),
        ("product", {"hazard": "*"}, "field 'hazard'"),
        ("product", {"step": None}, "it is null"),
        ("product", {"step": [1]}, "it is an array"),
        ("area", {"polygon": "0,0"}, "field 'polygon' must be a valid polygon"),
        ("area", {"polygon": {"eq": 1}}, "field 'polygon' must be a valid polygon"),
        ("area", {"polygon": SQUARE, "point": "0,0"}, "polygon and point"),
        ("area", {"polygon": 5, "point": None}, "polygon and point"),
        ("area", {"point": "x"}, "field 'point' must be a valid point"),
        ("cloud", {"point_cloud": [[0, 0]]}, "field 'point_cloud' is no filter here"),
        ("cloud", {"point": "0,0"}, "field 'point' is no filter here"),
        ("cloud", {}, "Required field 'point_cloud' missing for watch operation"),
        ("strict", {"number": 1, "polygon": SQUARE}, "Required field 'name' missing"),
        ("strict", {"name": "a", "polygon": SQUARE}, "Required field 'number' missing"),
        ("strict", {"name": "a", "number": 1}, "Required field 'polygon' missing"),
    ],
)
def test_a_filter_is_refused_with_the_reason(
    event_type: str, identifier: dict[str, Any], why: str
) -> None:
    sent = body(WATCH, event_type=event_type, identifier=identifier)
    error = refused(lambda: parse_subscription(sent))
    assert (error.status, error.code) == (400, "INVALID_WATCH_REQUEST")
    assert why in error.fields["message"]


@pytest.mark.parametrize(
    ("event_type", "identifier", "topic"),
    [
        ("product", {}, "prod.*.*.*.*.*.*.*"),
        ("product", {"time": "6"}, "prod.*.*.0600.*.*.*.*"),
        ("product", {"destination": "a.b"}, "prod.a.b.*.*.*.*.*.*"),
        ("product", {"destination": "*"}, "prod.*.*.*.*.*.*.*"),
        ("product", {"expver": "*"}, "prod.*.*.*.*.*.*.*"),
        ("product", {"hazard": {"eq": "fire"}}, "prod.*.*.*.*.*.*.*"),
        ("product", {"hazard": "FIRE"}, "prod.*.*.*.fire.*.*.*"),
        ("product", {"step": {"gt": 1}, "level": 1.50}, "prod.*.*.*.*.*.*.1.5"),
        ("product", {"point": "0,0"}, "prod.*.*.*.*.*.*.*"),
        ("cloud", {"polygon": SQUARE}, "cloud.*"),
        ("strict", {"name": "*", "number": {"gt": 0}, "point": "0,0"}, "strict.*.*"),
        ("strict", {"name": "a", "number": 1, "polygon": SQUARE}, "strict.a.1"),
    ],
)
def test_a_filter_has_a_topic_for_people(
    event_type: str, identifier: dict[str, Any], topic: str
) -> None:
    sent = body(WATCH, event_type=event_type, identifier=identifier, payload={"ignored": True})
    assert parse_subscription(sent).filter.topic == topic


# Bounds


def bounds(operation: Operation, **given: Any) -> tuple[Start | None, Start | None]:
    asked = parse_subscription(body(operation, event_type="product", identifier={}, **given))
    return asked.start, asked.stop


@pytest.mark.parametrize(
    ("text", "sequence"),
    [("0", 0), ("5", 5), ("+5", 5), ("0005", 5), ("18446744073709551615", 2**64 - 1)],
)
def test_a_replay_begins_at_a_sequence(text: str, sequence: int) -> None:
    assert bounds(REPLAY, from_id=text) == (Start(sequence=sequence, text=text), None)


@pytest.mark.parametrize(
    "text",
    ["", " ", " 5", "5 ", "-1", "1.0", "18446744073709551616", "mars@5", "x", "1e3", "٣", "9" * 99],
)
def test_what_is_no_sequence_is_refused(text: str) -> None:
    for operation in (WATCH, REPLAY):
        assert refused(lambda op=operation: bounds(op, from_id=text)).status == 400  # type: ignore[misc]
    assert refused(lambda: bounds(REPLAY, from_id="1", to_id=text)).status == 400


@pytest.mark.parametrize(
    ("operation", "given", "why"),
    [
        (REPLAY, {}, "needs from_id or from_date"),
        (REPLAY, {"from_id": None, "from_date": None}, "needs from_id or from_date"),
        (REPLAY, {"to_id": "5"}, "needs from_id or from_date"),
        (REPLAY, {"from_id": "1", "from_date": "0"}, "not both"),
        (WATCH, {"from_id": "1", "from_date": "0"}, "not both"),
        (WATCH, {"from_id": "x", "from_date": "y"}, "from_id is no start"),
        (WATCH, {"from_id": "1", "from_date": "y"}, "from_date is no start"),
        (WATCH, {"to_id": "1"}, "to_id is for replay only"),
        (WATCH, {"from_id": "1", "to_date": "5"}, "to_date is for replay only"),
        (REPLAY, {"from_id": "1", "to_id": "5", "to_date": "5"}, "to_id or to_date, not both"),
        (REPLAY, {"from_id": "5", "to_id": "4"}, "before the start"),
        (REPLAY, {"from_date": "5", "to_date": "4"}, "before the start"),
        (REPLAY, {"from_date": ""}, "from_date is no start"),
        (REPLAY, {"from_date": "2026-01-31"}, "from_date is no start"),
        (REPLAY, {"from_id": "1", "to_date": "x"}, "to_date is no start"),
    ],
)
def test_bounds_are_refused_with_the_reason(
    operation: Operation, given: dict[str, Any], why: str
) -> None:
    assert why in str(refused(lambda: bounds(operation, **given)))


def test_bounds_may_be_of_one_kind_or_of_two() -> None:
    one = Start(sequence=5, text="5")
    assert bounds(REPLAY, from_id="5", to_id="5") == (one, one)
    instant = Start(instant=5 * 10**9, text="5")
    assert bounds(REPLAY, from_id="5", to_date="5") == (one, instant)
    assert bounds(REPLAY, from_date="5", to_id="5") == (instant, one)
    assert bounds(WATCH) == (None, None)
    assert bounds(WATCH, from_date="5") == (instant, None)


def test_the_shape_is_looked_at_before_the_bounds_and_those_before_the_fields() -> None:
    sent: dict[str, Any] = {"event_type": "area", "identifier": {"point": "x", "extra": 1}}
    assert "point" in str(refused(lambda: parse_subscription(body(WATCH, **sent, from_id="x"))))
    sent["identifier"]["point"] = "0,0"
    assert "from_id" in str(refused(lambda: parse_subscription(body(WATCH, **sent, from_id="x"))))
    assert "extra" in str(refused(lambda: parse_subscription(body(WATCH, **sent, from_id="1"))))
