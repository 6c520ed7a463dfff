"""Aviso on the AWS path, with the stock client: `http` publishes, `live` streams and may only read.

`tests/unit/aviso` has the rules. Here is what a deployment adds: two functions, the edge, the
cache, an access secret, a schema in S3.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pyaviso
import pytest

from devtools.local_aws.stack import AwsLocal
from tests.e2e.conftest import CLOSED
from tests.e2e.private import bearer
from tests.support.aviso import SQUARE, Event
from tests.support.aviso_clients import SECONDS, connect, listening, replayed

MARS = {
    "class": "od", "expver": "1", "domain": "g", "date": "20260131", "time": "6",
    "stream": "oper", "step": 1,
}  # fmt: skip
WATCH = {"event_type": "mars", "identifier": {}}


@pytest.fixture
def client(aws_local: AwsLocal) -> Any:
    return connect(aws_local.url)


def known(stack: AwsLocal, scope: str = "", **claims: Any) -> Any:
    """A client that shows a token."""
    header = bearer(scope, "aviso/**", **claims)["Authorization"]
    return connect(stack.url, header.removeprefix("Bearer "))


def publish(client: Any, *steps: int, **more: str) -> None:
    for step in steps:
        client.notify(event_type="mars", identifier={**MARS, **more, "step": step})


def latest(client: Any) -> int:
    """Publishes a notification; returns its sequence."""
    marked = secrets.token_hex(4)
    publish(client, 0, stream=marked)
    (sequence,) = replayed(client, "mars", start_from=0, filter={"stream": marked})
    return sequence


def frames(answer: httpx.Response) -> Iterator[Event]:
    """The frames of an answer, as they come."""
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield Event(name, json.loads(line[6:]))


# Listening


def test_listeners_miss_nothing_while_their_watches_end_and_begin(
    aws_local: AwsLocal, client: Any
) -> None:
    def watches() -> int:
        return aws_local.requests("live")[("POST", "/api/v1/watch")]

    sent = latest(client)
    begun, own = datetime.now(UTC).isoformat(), secrets.token_hex(4)
    before = watches()
    with (
        listening(client, "mars") as everything,
        listening(client, "mars", filter={"step": {"in": [3, 4]}, "class": "od"}) as few,
        listening(client, "mars", start_from=begun, filter={"stream": own}) as late,
    ):
        deadline = time.monotonic() + SECONDS
        # All of them last equally long, so that each of the three has come back.
        while watches() - before < 3 * 2 or everything.silent or few.silent:
            assert time.monotonic() < deadline
            sent += 1
            publish(client, sent % 5)
            time.sleep(0.2)
        # A live listener hears what comes after it; from then on, all of it.
        got = everything.until(sent)
        assert got == list(range(got[0], sent + 1))
        last = next(each for each in range(sent, 0, -1) if each % 5 in (3, 4))
        chosen = few.until(last)
        assert chosen == [each for each in range(chosen[0], sent + 1) if each % 5 in (3, 4)]
        # It has got nothing yet, so it has come back with the same start.
        publish(client, 1, stream=own)
        assert late.next(1) == everything.next(1) == [sent + 1]


def test_a_listener_with_a_token_goes_on_live_after_its_replay(closed_local: AwsLocal) -> None:
    reader, writer = known(closed_local, "read"), known(closed_local, "write")
    first = latest(known(closed_local, "read write")) + 1
    publish(writer, 1, 2, 3)
    constraint = {"step": {"gte": 3}}
    with (
        listening(reader, "mars", start_from=first - 1) as everything,
        listening(reader, "mars", start_from=first - 1, filter=constraint) as few,
    ):
        assert everything.next(3) == [first, first + 1, first + 2]
        assert few.next(1) == [first + 2]
        publish(writer, 1, 4)
        assert everything.next(2) == [first + 3, first + 4]
        assert few.next(1) == [first + 4]
    assert replayed(reader, "mars", start_from=first, until=first + 2) == [first + 1, first + 2]
    with pytest.raises(pyaviso.AvisoError, match="401"):
        replayed(connect(closed_local.url), "mars", start_from=0)
    with pytest.raises(pyaviso.AvisoError, match="403"):
        publish(reader, 1)


def test_a_listener_is_there_before_the_first_notification(closed_local: AwsLocal) -> None:
    """Nobody else uses this event type here, so it has no stream yet."""
    reader, writer = known(closed_local, "read"), known(closed_local, "write")
    wanted: dict[str, Any] = {"filter": {"destination": "FOO"}}
    identifier = {**MARS, "destination": "FOO", "target": "t"}
    assert replayed(reader, "dissemination", start_from=0, **wanted) == []
    with listening(reader, "dissemination", **wanted) as listener:
        while listener.silent:
            writer.notify(event_type="dissemination", identifier=identifier, payload={"a": 1})
            time.sleep(0.2)
        first = listener.next(1)[0]
        writer.notify(event_type="dissemination", identifier=identifier, payload={"a": 1})
        last = replayed(reader, "dissemination", start_from=first, **wanted)[-1]
        assert listener.until(last) == list(range(first + 1, last + 1))


def test_a_shape_is_compared_in_the_function(closed_local: AwsLocal) -> None:
    both = known(closed_local, "read write")
    storm = {"date": "2026-01-31", "hazard": "storm", "severity": 5, "anomaly": 1.5}
    both.notify(event_type="extreme_event", identifier={**storm, "polygon": SQUARE})
    for point, found in (("5,5", 1), ("50,50", 0)):
        asked = {"start_from": 0, "filter": {"point": point, "hazard": {"eq": "storm"}}}
        assert len(replayed(both, "extreme_event", **asked)) == found


def test_frames_come_one_by_one(closed_local: AwsLocal, guarded: httpx.Client) -> None:
    writer, headers = known(closed_local, "write"), bearer("read", "aviso/mars")
    with guarded.stream("POST", "/api/v1/watch", json=WATCH, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-cache"
        assert "content-length" not in answer.headers
        coming = frames(answer)
        opening = next(coming)
        assert opening.data["type"] == "connection_established"
        lasts = opening.data["connection_will_close_in_seconds"]
        assert lasts == float(CLOSED["TAILRACE_AVISO_MAX_DURATION"])
        assert opening.data["request_id"] == answer.headers["x-request-id"]
        assert next(coming).name == "heartbeat"
        for step in (1, 2):
            # It comes although the answer has not ended: the next one is not even published.
            publish(writer, step)
            notification = next(coming)
            assert notification.name == "live-notification"
            assert notification.data["data"]["identifier"]["step"] == str(step)


def test_a_watch_ends_with_a_frame(viewer: httpx.Client) -> None:
    with viewer.stream("POST", "/api/v1/watch", json=WATCH) as answer:
        *_, closing = frames(answer)
    assert closing.data["reason"] == "max_duration_reached"


# Other answers


def test_both_functions_refuse_with_a_body_and_a_request_id(viewer: httpx.Client) -> None:
    unknown = b'{"event_type":"nothing","identifier":{}}'
    large = b" " * (256 * 1024 + 1)
    for path in ("/api/v1/watch", "/api/v1/notification"):
        answer = viewer.post(path, content=unknown)
        assert answer.status_code == 400
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["code"] == "UNKNOWN_EVENT_TYPE"
        assert answer.json()["request_id"] == answer.headers["x-request-id"]
        assert viewer.post(path, content=large).status_code == 413


@pytest.mark.parametrize(("path", "status"), [("/ready", 200), ("/api/v1/nothing", 404)])
def test_no_answer_is_cached(viewer: httpx.Client, path: str, status: int) -> None:
    ids = set()
    for _ in range(2):
        answer = viewer.get(path, headers={"x-request-id": "mine"})
        assert answer.status_code == status
        assert not answer.headers["x-cache"].startswith("Hit")
        ids.add(answer.headers["x-request-id"])
    assert len(ids) == 2
    assert "mine" not in ids


def test_documents_are_the_functions_own(closed_local: AwsLocal, guarded: httpx.Client) -> None:
    assert guarded.get("/ready").json() == {"status": "ready", "backend_connected": True}
    assert "/api/v1/watch" in guarded.get("/api-docs/openapi.json").json()["paths"]
    client = connect(closed_local.url)
    # The schema in S3 has one event type more than the one that comes along.
    assert set(client.schema().event_types) == {
        "mars", "dissemination", "extreme_event", "observation", "guarded",
    }  # fmt: skip
    assert client.schema_for("mars").schema["identifier"]["step"]["type"] == "IntHandler"


def test_pages_of_other_sites_may_ask(guarded: httpx.Client) -> None:
    asks = {
        "origin": "https://page.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    for path in ("/api/v1/watch", "/api/v1/notification"):
        answer = guarded.options(path, headers=asks)
        assert answer.status_code == 204
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "POST" in answer.headers["access-control-allow-methods"]
        allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
        assert {"authorization", "content-type"} <= set(allowed)
    refused = guarded.post("/api/v1/watch", json=WATCH, headers={"origin": asks["origin"]})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "*"


def test_a_key_makes_a_notification_safe_to_send_again(viewer: httpx.Client, client: Any) -> None:
    before = latest(client)
    body = {"event_type": "mars", "identifier": MARS}
    key = {"idempotency-key": secrets.token_hex(8)}
    for _ in range(3):
        assert viewer.post("/api/v1/notification", headers=key, json=body).status_code == 200
    assert replayed(client, "mars", start_from=before) == [before + 1]


# Access


@pytest.mark.parametrize(
    ("method", "path", "body", "right", "wrong"),
    [
        ("POST", "/api/v1/notification", {**WATCH, "identifier": MARS}, "write", "read"),
        ("POST", "/api/v1/replay", {**WATCH, "from_id": "0"}, "read", "write"),
        ("DELETE", "/api/v1/admin/notification/mars@1", {}, "admin", "write"),
    ],
    ids=["notification", "replay", "admin"],
)
def test_requests_need_the_right_token(
    guarded: httpx.Client, method: str, path: str, body: dict[str, Any], right: str, wrong: str
) -> None:
    def ask(headers: dict[str, str]) -> httpx.Response:
        return guarded.request(method, path, json=body, headers=headers)

    past = bearer(right, "aviso/**", exp=int(time.time()) - 60)
    forged = bearer(right, "aviso/**", secret="a-secret-that-nobody-knows-of")
    for headers in ({}, past, forged, {"X-Tailrace-Authorization": bearer(right)["Authorization"]}):
        refused = ask(headers)
        assert refused.status_code == 401, headers
        # WWW-Authenticate is a function URL's own; what a function says comes under another name.
        assert refused.headers["x-amzn-remapped-www-authenticate"].startswith("Bearer")
        assert refused.json()["code"] == "UNAUTHORIZED"
        assert refused.json()["request_id"] == refused.headers["x-request-id"]
    for headers in (bearer(wrong, "aviso/**"), bearer(right, "other/**")):
        refused = ask(headers)
        assert refused.status_code == 403
        assert refused.json()["code"] == "FORBIDDEN"
    assert ask(bearer(right, "aviso/**")).status_code in (200, 404)


def test_roles_count_in_the_functions(closed_local: AwsLocal) -> None:
    producer = known(closed_local, sub="p", realm="lab", roles=["producer"])
    reader = known(closed_local, sub="r", realm="lab", roles=["other"])
    admin = known(closed_local, sub="a", realm="ops", roles=["admin"])
    stranger = known(closed_local, sub="s", realm="shop", roles=["producer", "admin"])
    one = {"event_type": "guarded", "identifier": {"name": "a"}}
    producer.notify(**one)
    assert replayed(reader, "guarded", start_from=0) == [1]
    for refused in (reader, stranger):
        with pytest.raises(pyaviso.AvisoError, match="403"):
            refused.notify(**one)
        with pytest.raises(pyaviso.AvisoError, match="403"):
            refused.wipe_stream("guarded")
    with pytest.raises(pyaviso.AvisoError, match="403"):
        replayed(stranger, "guarded", start_from=0)
    admin.notify(**one)
    admin.delete_notification("guarded@1")
    assert replayed(reader, "guarded", start_from=0, filter={"name": "a"}) == [2]


def test_notifications_are_a_durable_stream(closed_local: AwsLocal, guarded: httpx.Client) -> None:
    latest(known(closed_local, "read write"))
    for path in ("/v1/stream/aviso/mars", "/ds/aviso/mars"):
        assert guarded.get(path).status_code == 401
        assert guarded.get(path, headers=bearer("read", "other/*")).status_code == 403
        answer = guarded.get(path, headers=bearer("read", "aviso/mars"))
        assert answer.status_code == 200
        assert answer.json()[-1]["type"] == "int.ecmwf.aviso.mars"
        assert answer.json()[-1]["subject"].startswith("mars.od.0001.g.20260131.0600.")


def test_an_admin_deletes(closed_local: AwsLocal) -> None:
    both, admin = known(closed_local, "read write"), known(closed_local, "admin")
    mine: dict[str, Any] = {"start_from": 0, "filter": {"stream": secrets.token_hex(4)}}
    publish(both, 1, 2, stream=mine["filter"]["stream"])
    sequences = replayed(both, "mars", **mine)
    # The function that replays is not the one that deletes, and has read these notifications.
    admin.delete_notification(f"mars@{sequences[0]}")
    assert replayed(both, "mars", **mine) == sequences[1:]
    with pytest.raises(pyaviso.HttpError, match="404"):
        admin.delete_notification(f"mars@{sequences[0]}")
    admin.wipe_stream("mars")
    assert replayed(both, "mars", **mine) == []
    publish(both, 4, stream=mine["filter"]["stream"])
    assert replayed(both, "mars", **mine) == [sequences[1] + 1]
