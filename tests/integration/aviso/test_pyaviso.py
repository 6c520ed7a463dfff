"""pyaviso, library and command line, against a server process."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pyaviso
import pytest

from devtools.server import Server
from tests.support.aviso import IDENTIFIER, SCHEMA, SQUARE
from tests.support.aviso_clients import SECONDS, CommandLine, listening, replay

SECRET = "a-secret-of-more-than-32-bytes-as-it-should-be"
DURATION = 1.5
"""Maximum duration of a watch in seconds; pyaviso then reconnects at once."""


@pytest.fixture(scope="module")
def aviso(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    env = {
        "TAILRACE_AVISO_SCHEMA": str(SCHEMA),
        "AVISOSERVER_WATCH_ENDPOINT__CONNECTION_MAX_DURATION_SEC": str(DURATION),
        "TAILRACE_AVISO_HEARTBEAT": "0.5",
    }
    with Server(tmp_path_factory.mktemp("aviso") / "data", env) as server:
        yield server


@pytest.fixture
def client(aviso: Server) -> Any:
    fresh = pyaviso.AvisoClient(base_url=aviso.url)
    fresh.wipe_all()
    return fresh


@pytest.fixture
def first(client: Any) -> int:
    """The sequence of the test's first notification: sequences continue after a wipe."""
    client.notify(event_type="product", identifier=IDENTIFIER)
    notifications = client.listen("product", filter={"time": "6"}, start_from=0, mode="replay_only")
    return int(next(iter(notifications)).sequence) + 1


def publish(client: Any, *steps: int) -> None:
    for step in steps:
        client.notify(
            event_type="product", identifier={**IDENTIFIER, "step": step}, payload={"step": step}
        )


def test_a_notification_is_returned_in_canonical_form(client: Any) -> None:
    result = client.notify(
        event_type="product", identifier=IDENTIFIER, payload={"b": [1, None], "a": 2}
    )
    assert result.status == "success"
    notifications = list(
        client.listen("product", filter={"time": "0600"}, start_from=0, mode="replay_only")
    )
    assert len(notifications) == 1
    assert notifications[0].event_type == "product"
    assert notifications[0].payload == {"a": 2, "b": [1, None]}
    assert notifications[0].identifier == {
        "destination": "FOO", "date": "20260131", "time": "0600", "hazard": "storm",
        "expver": "0001", "step": "12", "level": "42.5",
    }  # fmt: skip


def test_replays_are_filtered_and_bounded(client: Any, first: int) -> None:
    publish(client, 1, 2, 3, 4)
    everything = [first, first + 1, first + 2, first + 3]
    assert replay(client, "product", start_from=first - 1) == everything
    constraint = {"step": {"between": [2, 3]}}
    assert replay(client, "product", start_from=0, filter=constraint) == everything[1:3]
    assert replay(client, "product", start_from=first, until=first + 2) == everything[1:3]
    assert replay(client, "product", start_from=first + 99) == []


def test_a_replay_starts_at_a_date(client: Any, first: int) -> None:
    time.sleep(0.02)
    moment = datetime.now(UTC).isoformat()
    publish(client, 1, 2)
    filtered = {"filter": {"time": "6"}}
    assert replay(client, "product", start_from=moment, **filtered) == [first, first + 1]
    assert replay(client, "product", start_from="2000-01-01T00:00:00Z", **filtered)[-2:] == [
        first,
        first + 1,
    ]


def test_listeners_receive_live_notifications(client: Any, first: int) -> None:
    with (
        listening(client, "product") as everything,
        listening(
            client, "product", filter={"step": {"gt": 5}, "hazard": {"in": ["STORM"]}}
        ) as few,
    ):
        # Listeners do not report when they start, and they miss earlier notifications.
        last, deadline = first - 1, time.monotonic() + SECONDS
        while everything.empty or few.empty:
            assert time.monotonic() < deadline
            publish(client, 9)
            last += 1
            time.sleep(0.1)
        assert everything.until(last)[-1] == few.until(last)[-1] == last
        publish(client, 5, 6, 7)
        assert everything.next(3) == [last + 1, last + 2, last + 3]
        assert few.next(2) == [last + 2, last + 3]


def test_listeners_continue_from_their_start_across_connections(client: Any, first: int) -> None:
    publish(client, 1, 2)
    with (
        listening(client, "product", start_from=first - 1) as everything,
        listening(client, "product", start_from=first, filter={"step": {"gte": 2}}) as few,
    ):
        assert everything.next(2) == [first, first + 1]
        assert few.next(1) == [first + 1]
        end = time.monotonic() + 2 * DURATION
        sent = first + 2
        while time.monotonic() < end:
            publish(client, 3)
            assert everything.next(1) == [sent]
            assert few.next(1) == [sent]
            sent += 1
            time.sleep(0.1)


def test_a_listener_reconnects_to_a_restarted_server(tmp_path: Path) -> None:
    with Server(tmp_path / "data", {"TAILRACE_AVISO_SCHEMA": str(SCHEMA)}) as server:
        client = pyaviso.AvisoClient(base_url=server.url)
        publish(client, 1)
        with listening(client, "product", start_from=0) as listener:
            assert listener.next(1) == [1]
            server.kill()
            server.start()
            publish(client, 2)
            assert listener.next(1) == [2]


def test_replays_are_filtered_by_shape(client: Any) -> None:
    client.notify(event_type="area", identifier={"name": "text", "polygon": SQUARE})
    ring = [[20, 20], [20, 30], [30, 30], [20, 20]]
    client.notify(event_type="area", identifier={"name": "array", "polygon": ring})

    def names(**fields: Any) -> list[str]:
        notifications = client.listen("area", filter=fields, start_from=0, mode="replay_only")
        return [notification.identifier["name"] for notification in notifications]

    assert names(point="5,5") == ["text"]
    assert names(point=[21, 29]) == ["array"]
    assert names(polygon=[[5, 5], [5, 40], [40, 40], [5, 5]]) == ["text", "array"]
    assert names(polygon="50,50,50,60,60,60,50,50") == []


def test_event_types_need_no_schema(tmp_path: Path) -> None:
    file = tmp_path / "open.yaml"
    file.write_text("notification_schema_strict: false\n")
    with Server(tmp_path / "data", {"TAILRACE_AVISO_SCHEMA": str(file)}) as server:
        client = pyaviso.AvisoClient(base_url=server.url)
        with listening(client, "free", start_from=0, filter={"a": "x"}) as listener:
            for value in ("x", "y", "x"):
                client.notify(event_type="free", identifier={"a": value, "n": 1})
            assert listener.next(2) == [1, 3]
        assert replay(client, "free", start_from=0) == [1, 2, 3]


def test_schemas_are_returned(client: Any) -> None:
    assert set(client.schema().event_types) == {
        "product", "area", "cloud", "strict", "latest", "capped",
    }  # fmt: skip
    assert client.schema_for("product").event_type == "product"
    with pytest.raises(pyaviso.HttpError, match="404"):
        client.schema_for("nothing")


def test_an_admin_can_delete(client: Any, first: int) -> None:
    publish(client, 1, 2)
    client.delete_notification(f"product@{first}")
    everything = {"start_from": 0, "filter": {"time": "6"}}
    assert replay(client, "product", **everything) == [first - 1, first + 1]
    client.wipe_stream("product")
    assert replay(client, "product", **everything) == []
    publish(client, 3)
    assert replay(client, "product", **everything) == [first + 2]


def test_errors_are_raised_to_the_caller(client: Any) -> None:
    with pytest.raises(pyaviso.HttpError, match="UNKNOWN_EVENT_TYPE") as error:
        client.notify(event_type="nothing", identifier={})
    assert error.value.status == 400


def test_a_limited_replay_is_a_history_gap(client: Any) -> None:
    for _ in range(3):
        client.notify(event_type="capped", identifier={"name": "a"})
    notifications = client.listen("capped", filter={"name": "a"}, start_from=0, mode="replay_only")
    with pytest.raises(pyaviso.HistoryGapError):
        list(notifications)


def test_requests_are_authorized_by_token(tmp_path: Path) -> None:
    def connect_as(**claims: Any) -> Any:
        token = jwt.encode({"exp": time.time() + 60, **claims}, SECRET)
        return pyaviso.AvisoClient(base_url=server.url, auth=pyaviso.Bearer(token))

    env = {"TAILRACE_AVISO_SCHEMA": str(SCHEMA), "TAILRACE_SECRET": SECRET}
    with Server(tmp_path / "data", env) as server:
        writer = connect_as(scope="write", streams="aviso/prod")
        reader = connect_as(scope="read", streams="aviso/**")
        publish(writer, 1)
        assert replay(reader, "product", start_from=0) == [1]
        with pytest.raises(pyaviso.AvisoError, match="403"):
            publish(reader, 2)
        with pytest.raises(pyaviso.AvisoError, match="401"):
            publish(pyaviso.AvisoClient(base_url=server.url), 2)


# The command line


def test_the_command_line_works(aviso: Server, client: Any, tmp_path: Path) -> None:
    identifier = {**IDENTIFIER, "date": "20260131"}
    parameters = ",".join(f"{name}={value}" for name, value in identifier.items())

    command = CommandLine(tmp_path, aviso.url)

    def steps() -> list[str]:
        output = command.output(
            "replay", "--event", "product", "--identifiers", '{"time":"6"}', "--from", "0",
            "--json",
        )  # fmt: skip
        return [line for line in output.splitlines() if '"product"' in line or "product@" in line]

    assert "success" in command.output("notify", f'event=product,{parameters},data={{"x":1}}')
    assert len(steps()) == 1
    assert "product" in command.output("schema", "list")
    assert "StringHandler" in command.output("schema", "get", "product")
    with command.running(
        "listen", "--event", "product", "--identifiers", '{"time":"6"}', "--no-state-store",
        "--json",
    ) as lines:  # fmt: skip
        output, deadline = "", time.monotonic() + SECONDS
        while '"77"' not in output:
            assert time.monotonic() < deadline, output
            publish(client, 77)
            with contextlib.suppress(queue.Empty):
                output += lines.get(timeout=1)
    command.output("admin", "wipe-stream", "--yes", "product")
    assert steps() == []
