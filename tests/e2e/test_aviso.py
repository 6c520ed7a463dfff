"""Aviso on the local AWS, with pyaviso: `http` publishes, `live` streams and is read-only.

The rules are tested in `tests/unit/aviso`. These tests cover the parts that a deployment adds: two
functions, the edge, the cache, an access secret and a schema in S3.
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
from tests.support.aviso import SQUARE, Frame
from tests.support.aviso_clients import SECONDS, connect, listening, replay

MARS = {
    "class": "od", "expver": "1", "domain": "g", "date": "20260131", "time": "6",
    "stream": "oper", "step": 1,
}  # fmt: skip
WATCH = {"event_type": "mars", "identifier": {}}


@pytest.fixture
def client(aws_local: AwsLocal) -> Any:
    return connect(aws_local.url)


def connect_as(stack: AwsLocal, scope: str = "", **claims: Any) -> Any:
    """Create a client with a token."""
    header = bearer(scope, "aviso/**", **claims)["Authorization"]
    return connect(stack.url, header.removeprefix("Bearer "))


def publish(client: Any, *steps: int, **more: str) -> None:
    for step in steps:
        client.notify(event_type="mars", identifier={**MARS, **more, "step": step})


def publish_one(client: Any) -> int:
    """Publish a notification; returns its sequence."""
    marker = secrets.token_hex(4)
    publish(client, 0, stream=marker)
    (sequence,) = replay(client, "mars", start_from=0, filter={"stream": marker})
    return sequence


def frames(answer: httpx.Response) -> Iterator[Frame]:
    """The frames of a response, as they arrive."""
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield Frame(name, json.loads(line[6:]))


# Listening


def test_listeners_miss_nothing_across_reconnects(aws_local: AwsLocal, client: Any) -> None:
    def watches() -> int:
        return aws_local.requests("live")[("POST", "/api/v1/watch")]

    sent = publish_one(client)
    started, own = datetime.now(UTC).isoformat(), secrets.token_hex(4)
    before = watches()
    with (
        listening(client, "mars") as everything,
        listening(client, "mars", filter={"step": {"in": [3, 4]}, "class": "od"}) as few,
        listening(client, "mars", start_from=started, filter={"stream": own}) as late,
    ):
        deadline = time.monotonic() + SECONDS
        # All watches last equally long, so each of the three listeners has reconnected.
        while watches() - before < 3 * 2 or everything.empty or few.empty:
            assert time.monotonic() < deadline
            sent += 1
            publish(client, sent % 5)
            time.sleep(0.2)
        # A live listener receives every notification that is published after it started.
        got = everything.until(sent)
        assert got == list(range(got[0], sent + 1))
        last = next(each for each in range(sent, 0, -1) if each % 5 in (3, 4))
        selected = few.until(last)
        assert selected == [each for each in range(selected[0], sent + 1) if each % 5 in (3, 4)]
        # This one has received nothing yet, so it has reconnected with the same start.
        publish(client, 1, stream=own)
        assert late.next(1) == everything.next(1) == [sent + 1]


def test_a_listener_with_a_token_continues_live_after_its_replay(closed_local: AwsLocal) -> None:
    reader, writer = connect_as(closed_local, "read"), connect_as(closed_local, "write")
    first = publish_one(connect_as(closed_local, "read write")) + 1
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
    assert replay(reader, "mars", start_from=first, until=first + 2) == [first + 1, first + 2]
    with pytest.raises(pyaviso.AvisoError, match="401"):
        replay(connect(closed_local.url), "mars", start_from=0)
    with pytest.raises(pyaviso.AvisoError, match="403"):
        publish(reader, 1)


def test_a_listener_can_start_before_the_first_notification(closed_local: AwsLocal) -> None:
    """No other test uses this event type, so its stream does not exist yet."""
    reader, writer = connect_as(closed_local, "read"), connect_as(closed_local, "write")
    filtered: dict[str, Any] = {"filter": {"destination": "FOO"}}
    identifier = {**MARS, "destination": "FOO", "target": "t"}
    assert replay(reader, "dissemination", start_from=0, **filtered) == []
    with listening(reader, "dissemination", **filtered) as listener:
        while listener.empty:
            writer.notify(event_type="dissemination", identifier=identifier, payload={"a": 1})
            time.sleep(0.2)
        first = listener.next(1)[0]
        writer.notify(event_type="dissemination", identifier=identifier, payload={"a": 1})
        last = replay(reader, "dissemination", start_from=first, **filtered)[-1]
        assert listener.until(last) == list(range(first + 1, last + 1))


def test_shapes_are_compared_in_the_function(closed_local: AwsLocal) -> None:
    both = connect_as(closed_local, "read write")
    storm = {"date": "2026-01-31", "hazard": "storm", "severity": 5, "anomaly": 1.5}
    both.notify(event_type="extreme_event", identifier={**storm, "polygon": SQUARE})
    for point, count in (("5,5", 1), ("50,50", 0)):
        query = {"start_from": 0, "filter": {"point": point, "hazard": {"eq": "storm"}}}
        assert len(replay(both, "extreme_event", **query)) == count


def test_frames_are_streamed(closed_local: AwsLocal, guarded: httpx.Client) -> None:
    writer, headers = connect_as(closed_local, "write"), bearer("read", "aviso/mars")
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
            # Each frame arrives before the next notification is published.
            publish(writer, step)
            notification = next(coming)
            assert notification.name == "live-notification"
            assert notification.data["data"]["identifier"]["step"] == str(step)


def test_a_watch_ends_with_a_closing_frame(viewer: httpx.Client) -> None:
    with viewer.stream("POST", "/api/v1/watch", json=WATCH) as answer:
        *_, closing = frames(answer)
    assert closing.data["reason"] == "max_duration_reached"


# Other answers


def test_errors_of_both_functions_have_a_body_and_a_request_id(viewer: httpx.Client) -> None:
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
def test_responses_are_not_cached(viewer: httpx.Client, path: str, status: int) -> None:
    ids = set()
    for _ in range(2):
        answer = viewer.get(path, headers={"x-request-id": "mine"})
        assert answer.status_code == status
        assert not answer.headers["x-cache"].startswith("Hit")
        ids.add(answer.headers["x-request-id"])
    assert len(ids) == 2
    assert "mine" not in ids


def test_the_functions_serve_their_own_documents(
    closed_local: AwsLocal, guarded: httpx.Client
) -> None:
    assert guarded.get("/ready").json() == {"status": "ready", "backend_connected": True}
    assert "/api/v1/watch" in guarded.get("/api-docs/openapi.json").json()["paths"]
    client = connect(closed_local.url)
    # The schema in S3 has one event type more than the packaged one.
    assert set(client.schema().event_types) == {
        "mars", "dissemination", "extreme_event", "observation", "guarded",
    }  # fmt: skip
    assert client.schema_for("mars").schema["identifier"]["step"]["type"] == "IntHandler"


def test_other_origins_are_allowed(guarded: httpx.Client) -> None:
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
    response = guarded.post("/api/v1/watch", json=WATCH, headers={"origin": asks["origin"]})
    assert response.status_code == 401
    assert response.headers["access-control-allow-origin"] == "*"


def test_an_idempotency_key_makes_retries_safe(viewer: httpx.Client, client: Any) -> None:
    before = publish_one(client)
    body = {"event_type": "mars", "identifier": MARS}
    key = {"idempotency-key": secrets.token_hex(8)}
    for _ in range(3):
        assert viewer.post("/api/v1/notification", headers=key, json=body).status_code == 200
    assert replay(client, "mars", start_from=before) == [before + 1]


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
        response = ask(headers)
        assert response.status_code == 401, headers
        # Function URLs rename the WWW-Authenticate header of a function.
        assert response.headers["x-amzn-remapped-www-authenticate"].startswith("Bearer")
        assert response.json()["code"] == "UNAUTHORIZED"
        assert response.json()["request_id"] == response.headers["x-request-id"]
    for headers in (bearer(wrong, "aviso/**"), bearer(right, "other/**")):
        response = ask(headers)
        assert response.status_code == 403
        assert response.json()["code"] == "FORBIDDEN"
    assert ask(bearer(right, "aviso/**")).status_code in (200, 404)


def test_roles_are_checked_in_the_functions(closed_local: AwsLocal) -> None:
    producer = connect_as(closed_local, sub="p", realm="lab", roles=["producer"])
    reader = connect_as(closed_local, sub="r", realm="lab", roles=["other"])
    admin = connect_as(closed_local, sub="a", realm="ops", roles=["admin"])
    stranger = connect_as(closed_local, sub="s", realm="shop", roles=["producer", "admin"])
    one = {"event_type": "guarded", "identifier": {"name": "a"}}
    producer.notify(**one)
    assert replay(reader, "guarded", start_from=0) == [1]
    for forbidden in (reader, stranger):
        with pytest.raises(pyaviso.AvisoError, match="403"):
            forbidden.notify(**one)
        with pytest.raises(pyaviso.AvisoError, match="403"):
            forbidden.wipe_stream("guarded")
    with pytest.raises(pyaviso.AvisoError, match="403"):
        replay(stranger, "guarded", start_from=0)
    admin.notify(**one)
    admin.delete_notification("guarded@1")
    assert replay(reader, "guarded", start_from=0, filter={"name": "a"}) == [2]


def test_notifications_are_a_durable_stream(closed_local: AwsLocal, guarded: httpx.Client) -> None:
    publish_one(connect_as(closed_local, "read write"))
    for path in ("/v1/stream/aviso/mars", "/ds/aviso/mars"):
        assert guarded.get(path).status_code == 401
        assert guarded.get(path, headers=bearer("read", "other/*")).status_code == 403
        answer = guarded.get(path, headers=bearer("read", "aviso/mars"))
        assert answer.status_code == 200
        assert answer.json()[-1]["type"] == "int.ecmwf.aviso.mars"
        assert answer.json()[-1]["subject"].startswith("mars.od.0001.g.20260131.0600.")


def test_an_admin_can_delete(closed_local: AwsLocal) -> None:
    both, admin = connect_as(closed_local, "read write"), connect_as(closed_local, "admin")
    own: dict[str, Any] = {"start_from": 0, "filter": {"stream": secrets.token_hex(4)}}
    publish(both, 1, 2, stream=own["filter"]["stream"])
    sequences = replay(both, "mars", **own)
    # The function that replays is another one, and has already read these notifications.
    admin.delete_notification(f"mars@{sequences[0]}")
    assert replay(both, "mars", **own) == sequences[1:]
    with pytest.raises(pyaviso.HttpError, match="404"):
        admin.delete_notification(f"mars@{sequences[0]}")
    admin.wipe_stream("mars")
    assert replay(both, "mars", **own) == []
    publish(both, 4, stream=own["filter"]["stream"])
    assert replay(both, "mars", **own) == [sequences[1] + 1]
