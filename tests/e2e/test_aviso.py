"""Aviso on the AWS path: the stock client, and what it cannot show."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pyaviso
import pytest

from tests.aviso.clients import SECONDS, CommandLine, listening, replayed
from tests.aviso.tools import SQUARE, Event
from tests.e2e.conftest import VARIABLES
from tests.e2e.private import ACCESS, bearer
from tests.e2e.stack import AwsLocal

MARS = {
    "class": "od", "expver": "1", "domain": "g", "date": "20260131", "time": "6",
    "stream": "oper", "step": 1,
}  # fmt: skip
STORM = {"date": "2026-01-31", "hazard": "storm", "severity": 5, "anomaly": 1.5}
WATCH = {"event_type": "mars", "identifier": {}}
LASTS = float(VARIABLES["TAILRACE_AVISO_MAX_DURATION"])
SOON = 2.0
"""Seconds within which a notification reaches who listens; a look at the log comes every 0.5."""


@pytest.fixture
def client(aws_local: AwsLocal) -> Any:
    return pyaviso.AvisoClient(base_url=aws_local.url)


@pytest.fixture
def guarded(closed_local: AwsLocal) -> Iterator[httpx.Client]:
    """Somebody in front of the edge, where credentials count."""
    with httpx.Client(base_url=closed_local.url, timeout=30, trust_env=False) as viewer:
        yield viewer


def shown(stack: AwsLocal, scope: str, streams: str = "aviso/**") -> Any:
    return pyaviso.AvisoClient(base_url=stack.url, auth=pyaviso.Bearer(token(scope, streams)))


def token(scope: str, streams: str = "aviso/**") -> str:
    return bearer(scope, streams)["Authorization"].removeprefix("Bearer ")


def publish(client: Any, *steps: int, **more: str) -> None:
    for step in steps:
        client.notify(event_type="mars", identifier={**MARS, **more, "step": step})


def latest(client: Any) -> int:
    """Publishes one; its sequence."""
    marked = secrets.token_hex(4)
    publish(client, 0, stream=marked)
    (sequence,) = replayed(client, "mars", start_from=0, filter={"stream": marked})
    return sequence


def frames(answer: httpx.Response) -> Iterator[Event]:
    """As they come."""
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield Event(name, json.loads(line[6:]))


# Listening


def test_live_listeners_miss_nothing_while_their_watches_end_and_begin(
    aws_local: AwsLocal, client: Any
) -> None:
    first = latest(client) + 1
    watches = aws_local.requests("live")[("POST", "/api/v1/watch")]
    with (
        listening(client, "mars") as everything,
        listening(client, "mars", filter={"step": {"in": [3, 4]}, "class": "od"}) as few,
    ):
        sent = first - 1
        ends = time.monotonic() + 3 * LASTS
        while time.monotonic() < ends or everything.silent or few.silent:
            sent += 1
            publish(client, sent % 5)
            time.sleep(0.1)
        # A live listener hears what comes after it; from then on, all of it.
        got = everything.until(sent)
        assert got == list(range(got[0], sent + 1))
        last = next(each for each in range(sent, 0, -1) if each % 5 in (3, 4))
        chosen = few.until(last)
        assert chosen == [each for each in range(chosen[0], sent + 1) if each % 5 in (3, 4)]
    assert aws_local.requests("live")[("POST", "/api/v1/watch")] - watches >= 2 * 3


def test_a_listener_goes_on_live_after_its_replay(client: Any) -> None:
    first = latest(client) + 1
    publish(client, 1, 2, 3)
    constraint = {"step": {"gte": 3}}
    with (
        listening(client, "mars", start_from=first - 1) as everything,
        listening(client, "mars", start_from=first - 1, filter=constraint) as few,
    ):
        assert everything.next(3) == [first, first + 1, first + 2]
        assert few.next(1) == [first + 2]
        publish(client, 1, 4)
        assert everything.next(2) == [first + 3, first + 4]
        assert few.next(1) == [first + 4]
    everything_again = replayed(client, "mars", start_from=first - 1)
    assert everything_again == list(range(first, first + 5))
    assert replayed(client, "mars", start_from=first, until=first + 2) == [first + 1, first + 2]
    assert replayed(client, "mars", start_from=first - 1, filter=constraint) == [
        first + 2,
        first + 4,
    ]


def test_a_listener_with_a_start_hears_what_came_between_two_watches(client: Any) -> None:
    latest(client)
    mine = {"filter": {"stream": secrets.token_hex(4)}}
    begun = datetime.now(UTC).isoformat()
    with listening(client, "mars", start_from=begun, **mine) as listener:
        # It has got nothing yet, so it comes back with the same start.
        time.sleep(LASTS)
        publish(client, 1, **mine["filter"])
        assert len(listener.next(1)) == 1


def test_shapes_pass_live_and_replayed(client: Any) -> None:
    def happens(where: object) -> None:
        client.notify(event_type="extreme_event", identifier={**STORM, "polygon": where})

    happens(SQUARE)
    inside: dict[str, Any] = {"filter": {"point": "5,5", "hazard": {"eq": "storm"}}}
    around: dict[str, Any] = {"filter": {"polygon": [[5, 5], [5, 40], [40, 40], [5, 5]]}}
    begun = replayed(client, "extreme_event", start_from=0, **inside)
    with (
        listening(client, "extreme_event", start_from=begun[-1] - 1, **inside) as at_point,
        listening(client, "extreme_event", start_from=begun[-1] - 1, **around) as in_area,
    ):
        assert at_point.next(1) == in_area.next(1) == begun[-1:]
        happens([[20, 20], [20, 30], [30, 30], [20, 20]])
        happens([[60, 60], [60, 70], [70, 70], [60, 60]])
        happens(SQUARE)
        assert in_area.next(2) == [begun[-1] + 1, begun[-1] + 3]
        assert at_point.next(1) == [begun[-1] + 3]
    cloud = {"date": "20260131", "time": "6", "platform": "ship", "point_cloud": [[50, 7], [3, 4]]}
    client.notify(event_type="observation", identifier=cloud)
    seen = {"start_from": 0, "filter": {"polygon": SQUARE}}
    (found,) = client.listen("observation", mode="replay_only", **seen)
    assert found.identifier["point_cloud"] == [[50, 7], [3, 4]]


def test_a_listener_is_there_before_the_first_notification(closed_local: AwsLocal) -> None:
    """Nobody else uses this event type here, so it has no stream yet."""
    reader, writer = shown(closed_local, "read"), shown(closed_local, "write")
    identifier = {**MARS, "destination": "FOO", "target": "t"}
    assert replayed(reader, "dissemination", start_from=0, filter={"destination": "FOO"}) == []
    with listening(reader, "dissemination", filter={"destination": "FOO"}) as listener:
        while listener.silent:
            writer.notify(event_type="dissemination", identifier=identifier, payload={"a": 1})
            time.sleep(0.2)
        first = listener.next(1)[0]
        writer.notify(event_type="dissemination", identifier=identifier, payload={"a": 1})
        last = replayed(reader, "dissemination", start_from=first, filter={"destination": "FOO"})[
            -1
        ]
        assert listener.until(last) == list(range(first + 1, last + 1))


def test_frames_come_one_by_one(viewer: httpx.Client, client: Any) -> None:
    begun = time.monotonic()
    with viewer.stream("POST", "/api/v1/watch", json=WATCH) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-cache"
        assert "content-length" not in answer.headers
        coming = frames(answer)
        opening = next(coming)
        assert time.monotonic() - begun < SOON
        assert opening.data["type"] == "connection_established"
        assert opening.data["connection_will_close_in_seconds"] == LASTS
        assert opening.data["request_id"] == answer.headers["x-request-id"]
        assert next(coming).name == "heartbeat"
        for step in (1, 2):
            publish(client, step)
            sent = time.monotonic()
            notification = next(coming)
            assert time.monotonic() - sent < SOON
            assert notification.name == "live-notification"
            assert notification.data["data"]["identifier"]["step"] == str(step)
        closing = next(coming)
        assert closing.data["reason"] == "max_duration_reached"
        assert LASTS <= time.monotonic() - begun < LASTS + SOON
        assert list(coming) == []


def test_the_first_watch_of_a_new_environment_opens_far_within_ten_seconds(
    closed_local: AwsLocal, guarded: httpx.Client
) -> None:
    fields = {"event_type": "extreme_event", "identifier": {"polygon": SQUARE}, "from_id": "0"}
    writer = bearer("write", "aviso/**")
    body = {"event_type": "extreme_event", "identifier": {**STORM, "polygon": SQUARE}}
    assert guarded.post("/api/v1/notification", headers=writer, json=body).status_code == 200
    closed_local.change_access(ACCESS)  # which leaves no environment
    begun = time.monotonic()
    reader = bearer("read", "aviso/**")
    with guarded.stream("POST", "/api/v1/replay", headers=reader, json=fields) as answer:
        coming = frames(answer)
        assert next(coming).data["type"] == "replay_started"
        opened = time.monotonic() - begun
        assert next(coming).name == "replay"
        print(f"opened after {opened:.2f} s, a shape compared after {time.monotonic() - begun:.2f}")
    assert opened < 5


# Other answers


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "INVALID_JSON"),
        (b'{"event_type":"mars","identifier":{},"more":1}', 400, "UNKNOWN_FIELD"),
        (b'{"event_type":"mars","identifier":{},"from_id":1}', 400, "INVALID_REQUEST_SHAPE"),
        (b'{"event_type":"mars","identifier":{"clas":"od"}}', 400, "INVALID_WATCH_REQUEST"),
        (b'{"event_type":"nothing","identifier":{}}', 400, "UNKNOWN_EVENT_TYPE"),
    ],
)
def test_a_watch_that_cannot_be_is_refused_with_a_body(
    viewer: httpx.Client, body: bytes, status: int, code: str
) -> None:
    answer = viewer.post("/api/v1/watch", content=body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["code"] == code
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_a_body_that_is_too_large_is_refused_by_both_functions(viewer: httpx.Client) -> None:
    for path in ("/api/v1/watch", "/api/v1/notification"):
        answer = viewer.post(path, content=b" " * (256 * 1024 + 1))
        assert answer.status_code == 413
        assert "x-request-id" in answer.headers


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ready", 200),
        ("/api-docs/openapi.json", 200),
        ("/api/v1/schema", 200),
        ("/api/v1/schema/mars", 200),
        ("/api/v1/schema/nothing", 404),
        ("/api/v1/watch", 404),
        ("/api/v1/nothing", 404),
    ],
)
def test_every_answer_is_a_new_one_with_a_name_of_its_own(
    viewer: httpx.Client, path: str, status: int
) -> None:
    names = set()
    for _ in range(2):
        answer = viewer.get(path, headers={"x-request-id": "mine"})
        assert answer.status_code == status
        assert not answer.headers["x-cache"].startswith("Hit")
        names.add(answer.headers["x-request-id"])
    assert len(names) == 2
    assert "mine" not in names


def test_documents_are_the_functions_own(viewer: httpx.Client, client: Any) -> None:
    assert viewer.get("/ready").json() == {"status": "ready", "backend_connected": True}
    assert "/api/v1/watch" in viewer.get("/api-docs/openapi.json").json()["paths"]
    assert set(client.schema().event_types) == {
        "mars", "dissemination", "extreme_event", "observation",
    }  # fmt: skip
    assert client.schema_for("mars").schema["identifier"]["step"]["type"] == "IntHandler"
    with pytest.raises(pyaviso.HttpError, match="404"):
        client.schema_for("nothing")


def test_a_page_of_another_site_may_ask(guarded: httpx.Client) -> None:
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


# Who may


REQUESTS = [
    ("POST", "/api/v1/notification", {"event_type": "mars", "identifier": MARS}, "write", "read"),
    ("POST", "/api/v1/replay", {**WATCH, "from_id": "0"}, "read", "write"),
    ("POST", "/api/v1/watch", {**WATCH, "from_id": "0"}, "read", "write"),
    ("DELETE", "/api/v1/admin/notification/mars@1", {}, "admin", "write"),
    ("DELETE", "/api/v1/admin/wipe/all", {}, "admin", "write"),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "right", "wrong"), REQUESTS, ids=[each[1] for each in REQUESTS]
)
def test_the_door_is_closed_but_to_the_right_token(
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


def test_the_library_shows_its_token(closed_local: AwsLocal) -> None:
    nobody = pyaviso.AvisoClient(base_url=closed_local.url)
    reader, writer = shown(closed_local, "read"), shown(closed_local, "write")
    first = latest(shown(closed_local, "read write")) + 1
    with listening(reader, "mars", start_from=first - 1) as listener:
        # Each watch shows the token anew.
        for sequence in range(first, first + 4):
            publish(writer, 7)
            assert listener.next(1) == [sequence]
            time.sleep(LASTS / 3)
    with pytest.raises(pyaviso.AvisoError, match="401"):
        publish(nobody, 1)
    with pytest.raises(pyaviso.AvisoError, match="401"):
        replayed(nobody, "mars", start_from=0)
    with pytest.raises(pyaviso.AvisoError, match="403"):
        publish(reader, 1)
    with pytest.raises(pyaviso.AvisoError, match="403"):
        writer.wipe_all()
    assert nobody.schema().total_schemas == 4


def test_the_notifications_are_a_durable_stream_for_those_who_may_read_it(
    closed_local: AwsLocal, guarded: httpx.Client
) -> None:
    both = shown(closed_local, "read write")
    sequence = latest(both)
    for path in ("/v1/stream/aviso/mars", "/ds/aviso/mars"):
        assert guarded.get(path).status_code == 401
        assert guarded.get(path, headers=bearer("read", "other/*")).status_code == 403
        answer = guarded.get(path, headers=bearer("read", "aviso/mars"))
        assert answer.status_code == 200
        assert len(answer.json()) == sequence
        assert answer.json()[-1]["type"] == "int.ecmwf.aviso.mars"
        assert answer.json()[-1]["subject"].startswith("mars.od.0001.g.20260131.0600.")


def test_an_admin_deletes(closed_local: AwsLocal) -> None:
    both, admin = shown(closed_local, "read write"), shown(closed_local, "admin")
    mine: dict[str, Any] = {"start_from": 0, "filter": {"stream": secrets.token_hex(4)}}
    publish(both, 1, 2, 3, stream=mine["filter"]["stream"])
    sequences = replayed(both, "mars", **mine)
    # The function that replays is another than the one that deletes, and has read of others.
    admin.delete_notification(f"mars@{sequences[1]}")
    assert replayed(both, "mars", **mine) == [sequences[0], sequences[2]]
    admin.delete_notification(f"mars@{sequences[2]}")
    assert replayed(both, "mars", **mine) == sequences[:1]
    with pytest.raises(pyaviso.HttpError, match="404"):
        admin.delete_notification(f"mars@{sequences[1]}")
    admin.wipe_stream("mars")
    assert replayed(both, "mars", **mine) == []
    publish(both, 4, stream=mine["filter"]["stream"])
    assert replayed(both, "mars", **mine) == [sequences[2] + 1]
    admin.wipe_all()
    assert replayed(both, "mars", **mine) == []


# The command line


def test_the_command_line_does_all_of_it(closed_local: AwsLocal, tmp_path: Path) -> None:
    def command(scope: str) -> CommandLine:
        return CommandLine(tmp_path, closed_local.url, token(scope))

    begun = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    marked = secrets.token_hex(4)
    chosen = json.dumps({"stream": marked, "step": {"between": [5, 90]}})
    asks = ("--event", "mars", "--identifiers", chosen, "--json")
    reader, writer, admin = command("read"), command("write"), command("admin")

    def send(step: int) -> None:
        values = {**MARS, "stream": marked, "step": step}
        parameters = ",".join(f"{name}={value}" for name, value in values.items())
        assert "success" in writer.says("notify", f'event=mars,{parameters},data={{"x":1}}')

    def sequences() -> list[int]:
        lines = reader.says("replay", *asks, "--from", begun).splitlines()
        return [json.loads(line)["sequence"] for line in lines]

    send(4)
    send(5)
    with reader.saying("listen", *asks, "--from", "0", "--no-state-store") as lines:
        assert '"5"' in lines.get(timeout=SECONDS)
        send(77)
        assert '"77"' in lines.get(timeout=SECONDS)
    fifth, last = sequences()
    assert last == fifth + 1
    assert "dissemination" in reader.says("schema", "list")
    assert "IntHandler" in reader.says("schema", "get", "mars")
    for refused in (writer.run("admin", "wipe-all", "--yes"), reader.run("notify", "event=mars")):
        assert refused.returncode != 0
    admin.says("admin", "delete", "--yes", f"mars@{fifth}")
    assert sequences() == [last]
    admin.says("admin", "wipe-stream", "--yes", "mars")
    assert sequences() == []
