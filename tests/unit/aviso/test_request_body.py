"""Request bodies: their errors, and the order in which these are reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.protocols.aviso.error_codes import RequestKind
from tailrace.protocols.aviso.request_body import (
    Bound,
    parse_body,
    parse_notification,
    parse_query,
    refuse_filter_fields,
)
from tests.support.aviso import IDENTIFIER, SQUARE, catch, events, parse

NOTIFY, WATCH, REPLAY = RequestKind.NOTIFICATION, RequestKind.WATCH, RequestKind.REPLAY


def code_of(raw: bytes, kind: RequestKind = WATCH) -> str:
    return catch(lambda: parse_body(raw, kind, events())).code


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
def test_invalid_bodies_have_an_error_code(raw: bytes, code: str) -> None:
    for kind in RequestKind:
        assert code_of(raw, kind) == code


def test_brackets_in_strings_do_not_count_as_nesting() -> None:
    fields = {"event_type": "product", "identifier": {}, "payload": ["[{" * 500, {"[": '\\"['}]}
    parse_body(json.dumps(fields).encode(), NOTIFY, events())


@pytest.mark.parametrize(
    ("kind", "label"),
    [(NOTIFY, "Notification"), (WATCH, "Watch"), (REPLAY, "Replay")],
)
def test_an_error_names_the_kind_of_request(kind: RequestKind, label: str) -> None:
    fields = catch(lambda: parse_body(b"", kind, events())).fields
    assert fields.keys() == {"code", "details", "error", "message"}
    assert fields["error"] == f"Invalid {label} Request"


def test_the_error_for_an_unknown_event_type_lists_the_known_ones() -> None:
    raw = b'{"event_type":"nothing","identifier":{}}'
    error = catch(lambda: parse_body(raw, WATCH, events()))
    assert error.status == 400
    assert error.fields.keys() == {"code", "error", "message", "configured_event_types"}
    assert error.fields["error"] == "unknown_event_type"
    assert error.fields["configured_event_types"] == sorted(events())


def test_the_last_of_duplicate_keys_wins() -> None:
    raw = b'{"event_type":"nothing","event_type":"product","identifier":{}}'
    assert parse_body(raw, WATCH, events()).event.name == "product"


# Notifications


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"extra": "x"}, "Unknown field 'extra' provided for notify operation"),
        ({"step": None}, "field 'step' must be a valid value: it is null"),
        ({"step": [1]}, "field 'step' must be a valid value: it is an array"),
        ({"step": {"eq": 1}}, "constraints are only allowed in filters"),
        ({"destination": {"eq": "x"}}, "constraints are only allowed in filters"),
        ({"step": 241}, "is not in the range 0 to 240"),
        ({"step": 1.0}, "field 'step' must be a valid integer"),
        ({"step": True}, "field 'step' must be a valid integer"),
        ({"polygon": SQUARE}, "Unknown field 'polygon'"),
    ],
)
def test_invalid_notifications_are_refused(change: dict[str, Any], reason: str) -> None:
    sent = parse(NOTIFY, event_type="product", identifier={**IDENTIFIER, **change})
    error = catch(lambda: parse_notification(sent))
    assert (error.status, error.code) == (400, "INVALID_NOTIFICATION_REQUEST")
    assert reason in error.fields["message"]


@pytest.mark.parametrize("missing", IDENTIFIER)
def test_a_notification_needs_every_field(missing: str) -> None:
    identifier = {name: value for name, value in IDENTIFIER.items() if name != missing}
    sent = parse(NOTIFY, event_type="product", identifier=identifier)
    assert f"Required field '{missing}' missing" in str(catch(lambda: parse_notification(sent)))


@pytest.mark.parametrize(
    ("changes", "values"),
    [
        ({}, ("FOO", "20260131", "0600", "storm", "0001", "12", "42.5")),
        ({"level": 1e2}, ("FOO", "20260131", "0600", "storm", "0001", "12", "100")),
        ({"destination": 5}, ("5", "20260131", "0600", "storm", "0001", "12", "42.5")),
        ({"destination": 5.0}, ("5.0", "20260131", "0600", "storm", "0001", "12", "42.5")),
        ({"destination": 1e2}, ("100.0", "20260131", "0600", "storm", "0001", "12", "42.5")),
        ({"destination": True}, ("true", "20260131", "0600", "storm", "0001", "12", "42.5")),
        ({"time": 1200}, ("FOO", "20260131", "1200", "storm", "0001", "12", "42.5")),
        ({"destination": "*"}, ("*", "20260131", "0600", "storm", "0001", "12", "42.5")),
    ],
)
def test_values_are_stored_in_canonical_form(
    changes: dict[str, Any], values: tuple[str, ...]
) -> None:
    sent = parse(NOTIFY, event_type="product", identifier={**IDENTIFIER, **changes})
    assert parse_notification(sent).values == dict(zip(IDENTIFIER, values, strict=True))


def test_a_notification_must_not_have_a_point() -> None:
    for event_type in ("product", "area"):
        sent = parse(NOTIFY, event_type=event_type, identifier={"point": "0,0"})
        assert catch(lambda sent=sent: refuse_filter_fields(sent)).status == 400  # type: ignore[misc]


@pytest.mark.parametrize("payload", [{}, {"payload": None}])
def test_a_required_payload_must_be_present(payload: dict[str, Any]) -> None:
    identifier = {"name": "a", "number": 1, "polygon": SQUARE}
    sent = parse(NOTIFY, event_type="strict", identifier=identifier, **payload)
    assert "payload is required" in str(catch(lambda: parse_notification(sent)))


@pytest.mark.parametrize("payload", [0, False, "", [], {}])
def test_a_required_payload_may_be_anything_but_null(payload: object) -> None:
    identifier = {"name": "a", "number": 1, "polygon": SQUARE}
    sent = parse(NOTIFY, event_type="strict", identifier=identifier, payload=payload)
    assert parse_notification(sent).payload == payload


def test_a_notification_ignores_a_start_and_refuses_an_end() -> None:
    refuse_filter_fields(
        parse(NOTIFY, event_type="product", identifier={}, from_id="x", from_date="y")
    )
    for key in ("to_id", "to_date"):
        sent = parse(NOTIFY, event_type="product", identifier={}, **{key: "5"})
        error = catch(lambda sent=sent: refuse_filter_fields(sent))  # type: ignore[misc]
        assert "only allowed in a replay" in str(error)


# Filters


@pytest.mark.parametrize(
    ("event_type", "identifier", "reason"),
    [
        ("product", {"extra": 1}, "Unknown field 'extra' provided for watch operation"),
        ("product", {"polygon": SQUARE}, "Unknown field 'polygon'"),
        ("product", {"step": 500}, "is not in the range 0 to 240"),
        ("product", {"step": {}}, "exactly one of"),
        ("product", {"step": "*"}, "field 'step' must be a valid integer"),
        ("product", {"hazard": "*"}, "field 'hazard'"),
        ("product", {"step": None}, "it is null"),
        ("product", {"step": [1]}, "it is an array"),
        ("area", {"polygon": "0,0"}, "field 'polygon' must be a valid polygon"),
        ("area", {"polygon": {"eq": 1}}, "field 'polygon' must be a valid polygon"),
        ("area", {"polygon": SQUARE, "point": "0,0"}, "polygon and point"),
        ("area", {"polygon": 5, "point": None}, "polygon and point"),
        ("area", {"point": "x"}, "field 'point' must be a valid point"),
        ("cloud", {"point_cloud": [[0, 0]]}, "field 'point_cloud' cannot be filtered on"),
        ("cloud", {"point": "0,0"}, "field 'point' cannot be filtered on"),
        ("cloud", {}, "Required field 'point_cloud' missing for watch operation"),
        ("strict", {"number": 1, "polygon": SQUARE}, "Required field 'name' missing"),
        ("strict", {"name": "a", "polygon": SQUARE}, "Required field 'number' missing"),
        ("strict", {"name": "a", "number": 1}, "Required field 'polygon' missing"),
    ],
)
def test_invalid_filters_are_refused(
    event_type: str, identifier: dict[str, Any], reason: str
) -> None:
    sent = parse(WATCH, event_type=event_type, identifier=identifier)
    error = catch(lambda: parse_query(sent))
    assert (error.status, error.code) == (400, "INVALID_WATCH_REQUEST")
    assert reason in error.fields["message"]


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
def test_the_topic_of_a_filter_has_stars_for_wildcards(
    event_type: str, identifier: dict[str, Any], topic: str
) -> None:
    sent = parse(WATCH, event_type=event_type, identifier=identifier, payload={"ignored": True})
    assert parse_query(sent).filter.topic == topic


# Bounds


def bounds(kind: RequestKind, **fields: Any) -> tuple[Bound | None, Bound | None]:
    query = parse_query(parse(kind, event_type="product", identifier={}, **fields))
    return query.start, query.stop


@pytest.mark.parametrize(
    ("text", "sequence"),
    [("0", 0), ("5", 5), ("+5", 5), ("0005", 5), ("18446744073709551615", 2**64 - 1)],
)
def test_sequences_are_parsed(text: str, sequence: int) -> None:
    assert bounds(REPLAY, from_id=text) == (Bound(sequence=sequence), None)


@pytest.mark.parametrize(
    "text",
    ["", " ", " 5", "5 ", "-1", "1.0", "18446744073709551616", "mars@5", "x", "1e3", "٣", "9" * 99],
)
def test_invalid_sequences_are_refused(text: str) -> None:
    for kind in (WATCH, REPLAY):
        assert catch(lambda kind=kind: bounds(kind, from_id=text)).status == 400  # type: ignore[misc]
    assert catch(lambda: bounds(REPLAY, from_id="1", to_id=text)).status == 400


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        (REPLAY, {}, "needs from_id or from_date"),
        (REPLAY, {"from_id": None, "from_date": None}, "needs from_id or from_date"),
        (REPLAY, {"to_id": "5"}, "needs from_id or from_date"),
        (REPLAY, {"from_id": "1", "from_date": "0"}, "not both"),
        (WATCH, {"from_id": "1", "from_date": "0"}, "not both"),
        (WATCH, {"from_id": "x", "from_date": "y"}, "from_id is invalid"),
        (WATCH, {"from_id": "1", "from_date": "y"}, "from_date is invalid"),
        (WATCH, {"to_id": "1"}, "to_id is only allowed in a replay"),
        (WATCH, {"from_id": "1", "to_date": "5"}, "to_date is only allowed in a replay"),
        (REPLAY, {"from_id": "1", "to_id": "5", "to_date": "5"}, "to_id or to_date, not both"),
        (REPLAY, {"from_id": "5", "to_id": "4"}, "before the start"),
        (REPLAY, {"from_date": "5", "to_date": "4"}, "before the start"),
        (REPLAY, {"from_date": ""}, "from_date is invalid"),
        (REPLAY, {"from_date": "2026-01-31"}, "from_date is invalid"),
        (REPLAY, {"from_id": "1", "to_date": "x"}, "to_date is invalid"),
    ],
)
def test_invalid_bounds_are_refused(kind: RequestKind, fields: dict[str, Any], reason: str) -> None:
    assert reason in str(catch(lambda: bounds(kind, **fields)))


def test_bounds_may_be_sequences_or_instants() -> None:
    one = Bound(sequence=5)
    assert bounds(REPLAY, from_id="5", to_id="5") == (one, one)
    instant = Bound(instant=5 * 10**9)
    assert bounds(REPLAY, from_id="5", to_date="5") == (one, instant)
    assert bounds(REPLAY, from_date="5", to_id="5") == (instant, one)
    assert bounds(WATCH) == (None, None)
    assert bounds(WATCH, from_date="5") == (instant, None)


def test_shapes_are_validated_before_bounds_and_bounds_before_fields() -> None:
    sent: dict[str, Any] = {"event_type": "area", "identifier": {"point": "x", "extra": 1}}
    assert "point" in str(catch(lambda: parse_query(parse(WATCH, **sent, from_id="x"))))
    sent["identifier"]["point"] = "0,0"
    assert "from_id" in str(catch(lambda: parse_query(parse(WATCH, **sent, from_id="x"))))
    assert "extra" in str(catch(lambda: parse_query(parse(WATCH, **sent, from_id="1"))))
