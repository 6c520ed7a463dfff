"""Action Cable on the wire, frame by frame."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from devtools.server import Server
from tailrace import __version__
from tailrace.limits import CABLE_MESSAGE_BYTES
from tests.support.cable import (
    EXTENDED,
    SECONDS,
    SETTINGS,
    BroadcastClient,
    CableClient,
    Log,
    on_cable,
    pubsub,
    signed,
    token,
)

PLAIN = "actioncable-v1-json"


async def closed(cable: CableClient) -> tuple[int | None, str | None]:
    """The code and reason with which the server closes the connection."""
    await asyncio.wait_for(cable.socket.wait_closed(), SECONDS)
    return cable.socket.close_code, cable.socket.close_reason


def since(seconds: float) -> dict[str, Any]:
    return {"since": seconds, "streams": {}}


def after(stream: str, frame: dict[str, Any]) -> dict[str, Any]:
    """A request for the history after a message."""
    return {"streams": {stream: {"epoch": frame["epoch"], "offset": frame["offset"]}}}


# The handshake


@pytest.mark.parametrize(
    ("offered", "spoken"),
    [((PLAIN, "actioncable-unsupported"), PLAIN), ((EXTENDED, PLAIN), PLAIN), ((), None)],
)
async def test_the_preferred_protocol_is_chosen(
    cable_server: Server, offered: tuple[str, ...], spoken: str | None
) -> None:
    async with on_cable(cable_server, protocols=offered) as cable:
        assert cable.socket.subprotocol == spoken
        assert cable.welcome["type"] == "welcome"
        assert cable.socket.response is not None
        assert cable.socket.response.headers["X-Tailrace-Version"] == __version__


async def test_a_session_is_named_by_the_server_alone(cable_server: Server) -> None:
    given = {"X-Request-ID": "mine"}
    async with (
        on_cable(cable_server, "sid=mine", headers=given) as one,
        on_cable(cable_server, "sid=mine", headers=given) as two,
    ):
        assert len({"mine", one.sid, two.sid}) == 3


async def test_elsewhere_there_is_no_cable(cable_server: Server) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"ws://127.0.0.1:{cable_server.port}/elsewhere", proxy=None)
    assert refused.value.response.status_code == 404
    assert refused.value.response.headers["X-Tailrace-Version"] == __version__


async def test_pages_of_other_sites_may_be_kept_out(tmp_path: Path) -> None:
    settings = {"TAILRACE_ALLOWED_ORIGINS": "https://a.example"}
    with Server(tmp_path / "data", settings) as server:
        async with on_cable(server, headers={"Origin": "https://a.example"}) as cable:
            assert cable.welcome["type"] == "welcome"
        with pytest.raises(InvalidStatus) as refused:
            async with on_cable(server, headers={"Origin": "https://b.example"}):
                pass
        assert refused.value.response.status_code == 403


async def test_connections_of_a_client_are_limited(tmp_path: Path) -> None:
    with Server(tmp_path / "data", {"TAILRACE_LIVE_CONNECTIONS": "1"}) as server:
        async with on_cable(server):
            with pytest.raises(InvalidStatus) as refused:
                async with on_cable(server):
                    pass
            assert refused.value.response.status_code == 429


# Tokens


@pytest.mark.parametrize("way", ["query", "header", "protocol"])
async def test_a_token_may_be_shown_in_three_ways(
    cable_server: Server, broadcast: BroadcastClient, way: str
) -> None:
    who = f'{{"way":"{way}"}}'
    shown = token(who)
    query = f"jid={shown}" if way == "query" else ""
    headers = {"X-JID": shown} if way == "header" else None
    more = (f"anycable-token.{shown}",) if way == "protocol" else ()
    async with on_cable(cable_server, query, (EXTENDED, *more), headers) as cable:
        assert cable.socket.subprotocol == EXTENDED
        command = {"command": "disconnect", "payload": {"identifier": who}}
        assert broadcast.post(command).status_code == 201
        heard = await cable.hear()
        assert heard == {"type": "disconnect", "reason": "remote", "reconnect": False}
        assert await closed(cable) == (1000, "Closed remotely")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (f"jid={token(lasting=-1)}", "token_expired"),
        ("jid=x.y.z", "unauthorized"),
        (f"jid={token()}x", "unauthorized"),
        (f"jid={token(nbf=4102444800)}", "unauthorized"),
        (f"jid={token()}&jid={token()}", "unauthorized"),
    ],
)
async def test_a_client_with_a_bad_token_gets_the_reason(
    cable_server: Server, query: str, reason: str
) -> None:
    async with on_cable(cable_server, query) as cable:
        assert cable.welcome == {"type": "disconnect", "reason": reason, "reconnect": False}
        assert await closed(cable) == (1000, "Auth Failed")


async def test_a_session_ends_with_its_token(cable_server: Server, stream: str) -> None:
    async with on_cable(cable_server, f"jid={token(lasting=1)}") as cable:
        if (
            cable.welcome["type"] == "welcome"
        ):  # Otherwise the machine is slow, and the connection has ended already.
            await cable.say("subscribe", pubsub(stream))
            while (heard := await cable.hear())["type"] != "disconnect":
                assert heard["type"] == "confirm_subscription"
            assert heard == {"type": "disconnect", "reason": "token_expired", "reconnect": False}
        assert await closed(cable) == (1000, "Auth Failed")


async def test_two_tokens_are_none(cable_server: Server) -> None:
    protocols = (EXTENDED, f"anycable-token.{token('a')}")
    async with on_cable(cable_server, f"jid={token('b')}", protocols) as cable:
        assert cable.welcome["reason"] == "unauthorized"


async def test_enforced_tokens_are_required(tmp_path: Path) -> None:
    with Server(tmp_path / "data", {**SETTINGS, "TAILRACE_ENFORCE_JWT": "true"}) as server:
        async with on_cable(server) as cable:
            assert cable.welcome["reason"] == "unauthorized"
        async with on_cable(server, f"jid={token()}") as cable:
            await cable.subscribe(pubsub("open/1"))


async def test_nothing_secret_is_in_the_log(tmp_path: Path) -> None:
    settings = {**SETTINGS, "TAILRACE_LOG_LEVEL": "debug"}
    with Server(tmp_path / "data", settings) as server:
        shown, name = token(), signed("chat/1")
        async with on_cable(server, f"jid={shown}") as cable:
            await cable.subscribe(name)
        async with on_cable(server, protocols=(EXTENDED, f"anycable-token.{shown}")) as cable:
            await cable.say("nonsense", name)
            await cable.socket.ping()
        output = server.log.read_text()
    assert shown not in output
    assert json.loads(name)["signed_stream_name"] not in output


# Staying


async def test_pings_come_as_often_as_a_client_wants(cable_server: Server) -> None:
    async with on_cable(cable_server, "pi=0.1&ptp=ms") as often:
        first = json.loads(await asyncio.wait_for(often.socket.recv(), SECONDS))
        assert first["type"] == "ping"
        assert len(str(first["message"])) == 13
    async with on_cable(cable_server, "pi=0") as never:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(never.socket.recv(), 1.2)


@pytest.mark.parametrize("text", ["", "x", "[]", '{"command":"nonsense"}', '{"command":7}'])
async def test_invalid_commands_are_ignored(cable_server: Server, text: str) -> None:
    async with on_cable(cable_server) as cable:
        await cable.socket.send(text)
        await cable.say("ping")
        assert await cable.hear() == {"type": "pong"}


async def test_a_frame_that_is_too_large_ends_the_connection(cable_server: Server) -> None:
    async with on_cable(cable_server) as cable:
        await cable.socket.send("x" * 65_537)
        assert (await closed(cable))[0] == 1009


async def test_a_stopping_server_makes_clients_reconnect(own_server: Server) -> None:
    async with on_cable(own_server) as cable:
        await cable.subscribe(pubsub("a"))
        await asyncio.to_thread(own_server.stop)
        heard = await cable.hear()
        assert heard == {"type": "disconnect", "reason": "server_restart", "reconnect": True}
        assert await closed(cable) == (1001, "Server restart")


async def test_a_slow_client_is_dropped_and_delays_no_other(
    cable_server: Server, broadcast: BroadcastClient, stream: str
) -> None:
    message = json.dumps("x" * 50_000)
    async with on_cable(cable_server) as quick, on_cable(cable_server, "pi=0") as slow:
        await quick.subscribe(pubsub(stream))
        await slow.subscribe(pubsub(stream))
        slow.socket.transport.pause_reading()

        async def reads() -> list[Any]:
            return [(await quick.hear())["offset"] for _ in range(200)]

        reading = asyncio.create_task(reads())
        for _ in range(200):
            await asyncio.to_thread(broadcast, stream, message)
        assert await asyncio.wait_for(reading, SECONDS) == list(range(1, 201))
        await asyncio.sleep(0.1)
        slow.socket.transport.resume_reading()
        heard = 0
        # On a slow machine the session may have expired by now.
        with contextlib.suppress(ConnectionClosedError):
            async for _ in slow.socket:
                heard += 1
        assert heard < 200


# Messages


@pytest.mark.parametrize(
    "body",
    [b'{"b": 1,  "a":1.0}', b"12345678901234567890", b'"<&>\\u2028"', '"é\u2028"'.encode()],
)
async def test_bytes_delivered_are_the_bytes_appended(
    cable_server: Server, log: Log, broadcast: BroadcastClient, stream: str, body: bytes
) -> None:
    async with on_cable(cable_server) as cable:
        await cable.subscribe(pubsub(stream))
        broadcast(stream, body.decode())
        live = await cable.hear_text()
        assert f'"message":{body.decode()},"stream_id"' in live
        # And once more from the log.
        await cable.say("history", pubsub(stream), history=since(1))
        assert await cable.hear_text() == live
    assert log.ask("GET", stream).content == b"[%b]" % body


async def test_text_and_bytes_are_strings(own_server: Server) -> None:
    async with on_cable(own_server) as cable:
        log = Log(own_server)
        for path, kind in (("t", "text/plain"), ("b", "application/octet-stream")):
            log.change("PUT", path, content_type=kind)
            await cable.subscribe(pubsub(path))
        for path, kind, body in (
            ("t", "text/plain", "é\n".encode()),
            ("b", "application/octet-stream", b"\x00\xff"),
        ):
            log.change("POST", path, body, content_type=kind)
        one, two = await cable.hear(), await cable.hear()
        assert (one["message"], one["offset"]) == ("é\n", 3)
        assert (two["message"], two["offset"]) == ("AP8=", 2)


async def test_a_stream_is_delivered_once_per_identifier(
    cable_server: Server, broadcast: BroadcastClient, stream: str
) -> None:
    async with on_cable(cable_server) as cable:
        await cable.subscribe(pubsub(stream))
        await cable.subscribe(signed(stream))
        broadcast(stream, "1")
        heard = {(await cable.hear())["identifier"] for _ in range(2)}
        assert heard == {pubsub(stream), signed(stream)}


async def test_unsubscribe_stops_delivery(
    cable_server: Server, broadcast: BroadcastClient, stream: str
) -> None:
    async with on_cable(cable_server) as cable:
        await cable.subscribe(pubsub(stream))
        await cable.say("unsubscribe", pubsub(stream))
        await cable.say("ping")
        assert await cable.hear() == {"type": "pong"}
        broadcast(stream, "1")
        assert await cable.is_silent()


# Streams that come and go


@pytest.mark.parametrize("protocol", [EXTENDED, PLAIN])
async def test_a_missing_stream_is_delivered_once_created(
    own_server: Server, protocol: str
) -> None:
    """Also after a deletion, which only clients of the extended protocol are told of."""

    async def hears_of_the_deletion() -> None:
        if protocol == EXTENDED:
            assert await cable.hear() == {"type": "deleted", "identifier": pubsub("a")}

    async with on_cable(own_server, protocols=(protocol,)) as cable:
        await cable.subscribe(pubsub("a"))
        log = Log(own_server)
        assert log.ask("GET", "a").status_code == 404  # Subscribing creates no stream.
        log.change("PUT", "a", b"[1,2]")
        first = await cable.hear()
        assert (first["message"], first["offset"]) == (1, 1)
        assert await cable.messages(1) == [2]
        log.change("DELETE", "a")
        await hears_of_the_deletion()
        log.change("PUT", "a", b"[3]")
        again = await cable.hear()
        assert (again["message"], again["offset"]) == (3, 1)
        assert again["epoch"] != first["epoch"]
        log.change("DELETE", "a")
        log.change("PUT", "a")
        log.change("POST", "a", b"4")
        await hears_of_the_deletion()
        assert await cable.messages(1) == [4]


async def test_after_a_closed_stream_another_one_may_come(own_server: Server) -> None:
    async with on_cable(own_server) as cable:
        log = Log(own_server)
        log.change("PUT", "a")
        await cable.subscribe(pubsub("a"))
        log.change("POST", "a", b"1", stream_closed="true")
        assert await cable.messages(1) == [1]
        log.change("DELETE", "a")
        assert (await cable.hear())["type"] == "deleted"
        log.change("PUT", "a", b"2")
        assert await cable.messages(1) == [2]


# MissedMessages


async def test_history_goes_on_after_any_message(
    cable_server: Server, broadcast: BroadcastClient, stream: str
) -> None:
    broadcast.post([{"stream": stream, "data": str(i)} for i in range(1, 6)])
    broadcast(stream, "6")
    broadcast.post([{"stream": stream, "data": str(i)} for i in (7, 8)])
    async with on_cable(cable_server) as cable:
        await cable.subscribe(pubsub(stream), history=since(1))
        frames = [await cable.hear() for _ in range(8)]
        assert [each["message"] for each in frames] == list(range(1, 9))
        assert [each["offset"] for each in frames] == list(range(1, 9))
        assert (await cable.hear())["type"] == "confirm_history"
        for last in frames:
            await cable.say("history", pubsub(stream), history=after(stream, last))
            missed = list(range(last["offset"] + 1, 9))
            assert await cable.messages(len(missed)) == missed
            assert (await cable.hear())["type"] == "confirm_history"
        broadcast(stream, "9")
        assert await cable.messages(1) == [9]


@pytest.mark.parametrize(
    "place",
    [
        {"epoch": "beef", "offset": 1},
        {"offset": 1},
        {"epoch": 7, "offset": 1},
        {"epoch": "+", "offset": 99},
        {"epoch": "+", "offset": -1},
    ],
)
async def test_a_place_that_is_not_to_be_found_is_refused_and_nothing_is_sent(
    cable_server: Server, broadcast: BroadcastClient, stream: str, place: dict[str, Any]
) -> None:
    async with on_cable(cable_server) as cable:
        await cable.subscribe(pubsub(stream))
        broadcast(stream, "1")
        heard = await cable.hear()
        if place.get("epoch") == "+":
            place = {**place, "epoch": heard["epoch"]}
        await cable.say("history", pubsub(stream), history={"streams": {stream: place}})
        refused = {"type": "reject_history", "identifier": pubsub(stream)}
        assert await cable.hear() == refused
        broadcast(stream, "2")
        assert await cable.messages(1) == [2]


async def test_unrelated_positions_are_ignored(
    cable_server: Server, broadcast: BroadcastClient, stream: str
) -> None:
    confirmed = {"type": "confirm_history", "identifier": pubsub(stream)}
    async with on_cable(cable_server) as cable:
        await cable.subscribe(pubsub(stream), history=since(1))
        assert await cable.hear() == confirmed
        broadcast(stream, "1")
        assert await cable.messages(1) == [1]
        other = {"streams": {"chat/private": {"epoch": "e", "offset": 0}}}
        await cable.say("history", pubsub(stream), history=other)
        assert await cable.hear() == confirmed
        await cable.say("history", pubsub(stream))
        await cable.say("ping")
        assert await cable.hear() == {"type": "pong"}
        await cable.say("history", signed("chat/private"), history=since(1))
        assert (await cable.hear())["type"] == "reject_history"


async def test_a_place_in_a_stream_that_is_missing_is_not_to_be_found(
    cable_server: Server, stream: str
) -> None:
    async with on_cable(cable_server) as cable:
        history = {"since": 1, "streams": {stream: {"epoch": "e", "offset": 1}}}
        await cable.subscribe(pubsub(stream), history=history)
        assert (await cable.hear())["type"] == "reject_history"


async def test_a_client_whose_clock_is_ahead_misses_nothing_that_is_new(
    cable_server: Server, broadcast: BroadcastClient, stream: str
) -> None:
    broadcast(stream, "1")
    async with on_cable(cable_server) as cable:
        await cable.subscribe(pubsub(stream), history=since(4102444800))
        assert (await cable.hear())["type"] == "confirm_history"
        broadcast(stream, "2")
        assert await cable.messages(1) == [2]


async def test_a_long_history_is_sent_at_the_pace_of_the_client(
    cable_server: Server, broadcast: BroadcastClient, stream: str
) -> None:
    """Ten times the limit of an outbox."""
    text = json.dumps("x" * 100_000)
    for _ in range(10):
        broadcast.post([{"stream": stream, "data": text}] * 10)
    async with on_cable(cable_server) as cable:
        await cable.subscribe(pubsub(stream), history=since(1))
        assert [(await cable.hear())["offset"] for _ in range(100)] == list(range(1, 101))
        assert (await cable.hear())["type"] == "confirm_history"


async def test_a_message_that_is_larger_than_what_may_wait_is_delivered(
    own_server: Server, stream: str
) -> None:
    """With its envelope it exceeds the limit of an outbox. A larger one is not sent at all."""
    large = b'"%b"' % (b"x" * (CABLE_MESSAGE_BYTES - 2))
    log = Log(own_server)
    log.change("PUT", stream)
    async with on_cable(own_server) as cable:
        await cable.subscribe(pubsub(stream))
        for body, heard in ((large, [1]), (b'["y%b,3]' % large[1:], [3]), (large, [4])):
            await asyncio.to_thread(log.change, "POST", stream, body)
            assert [(await cable.hear())["offset"] for _ in heard] == heard
        await cable.say("history", pubsub(stream), history=since(1))
        assert [(await cable.hear())["offset"] for _ in range(3)] == [1, 3, 4]


# Resuming


async def test_a_resumed_session_gets_missed_messages_without_confirmation(
    cable_server: Server, broadcast: BroadcastClient, stream: str
) -> None:
    query = f"jid={token('resuming')}"
    async with on_cable(cable_server, query) as cable:
        await cable.subscribe(signed(stream), history=since(0))
        assert (await cable.hear())["type"] == "confirm_history"
        broadcast(stream, "1")
        last, old = await cable.hear(), cable.sid
    broadcast(stream, "2")
    async with on_cable(cable_server, f"{query}&sid={old}") as cable:
        assert cable.welcome["restored"] is True
        assert cable.welcome["restored_ids"] == [signed(stream)]
        assert cable.sid != old
        broadcast(stream, "3")
        await cable.say("history", signed(stream), history=after(stream, last))
        assert await cable.messages(2) == [2, 3]
        assert (await cable.hear())["type"] == "confirm_history"
        broadcast(stream, "4")
        assert await cable.messages(1) == [4]
    header = {"X-AnyCable-Restore-Sid": cable.sid}
    async with on_cable(cable_server, query, headers=header) as cable:
        assert cable.welcome["restored"] is True


@pytest.mark.parametrize("still_there", [True, False])
async def test_the_name_of_a_session_alone_grants_nothing(
    cable_server: Server, still_there: bool
) -> None:
    async with on_cable(cable_server, f"jid={token('owner')}") as owner:
        await owner.subscribe(signed("chat/secret"))
        if not still_there:
            await owner.socket.close()
            await asyncio.sleep(0.1)
        for stranger in ("", f"&jid={token('stranger')}"):
            async with on_cable(cable_server, f"sid={owner.sid}{stranger}") as cable:
                assert list(cable.welcome) == ["type", "sid"]
        async with on_cable(
            cable_server, f"sid={owner.sid}&jid={token('owner', lasting=-1)}"
        ) as cable:
            assert cable.welcome["reason"] == "token_expired"


async def test_a_client_without_a_token_cannot_resume(cable_server: Server, stream: str) -> None:
    async with on_cable(cable_server) as cable:
        await cable.subscribe(pubsub(stream))
    async with on_cable(cable_server, f"sid={cable.sid}") as again:
        assert list(again.welcome) == ["type", "sid"]


async def test_on_the_plain_protocol_nothing_is_restored(cable_server: Server, stream: str) -> None:
    query = f"jid={token('plain')}"
    async with on_cable(cable_server, query) as cable:
        await cable.subscribe(pubsub(stream))
    async with on_cable(cable_server, f"{query}&sid={cable.sid}", (PLAIN,)) as again:
        assert list(again.welcome) == ["type", "sid"]


async def test_an_open_server_restores_any_session(own_server: Server) -> None:
    async with on_cable(own_server) as cable:
        await cable.subscribe(pubsub("a"))
    async with on_cable(own_server, f"sid={cable.sid}") as again:
        assert again.welcome["restored_ids"] == [pubsub("a")]


# Whispers and presence


async def test_a_whisper_is_for_the_others_and_is_not_kept(
    cable_server: Server, log: Log, stream: str
) -> None:
    async with on_cable(cable_server) as one, on_cable(cable_server) as two:
        for cable in (one, two):
            await cable.subscribe(pubsub(stream))
        await one.say("whisper", pubsub(stream), data={"typing": True})
        assert await two.hear() == {"identifier": pubsub(stream), "message": {"typing": True}}
        assert await one.is_silent()
    assert log.ask("GET", stream).status_code == 404


async def test_turbo_gets_neither_whispers_nor_presence(
    cable_server: Server, broadcast: BroadcastClient, stream: str
) -> None:
    name = json.loads(signed(stream))["signed_stream_name"]
    turbo = json.dumps({"channel": "Turbo::StreamsChannel", "signed_stream_name": name})
    async with on_cable(cable_server) as one, on_cable(cable_server) as two:
        await one.subscribe(pubsub(stream))
        await two.subscribe(turbo)
        await one.say("whisper", pubsub(stream), data="<turbo-stream>")
        await one.say("join", pubsub(stream), presence={"id": "ada"})
        assert (await one.hear())["type"] == "presence"
        broadcast(stream, "1")
        assert await two.messages(1) == [1]


async def test_joins_and_leaves_are_sent_to_all_subscribers(
    cable_server: Server, stream: str
) -> None:
    identifier = pubsub(stream)

    def told(message: dict[str, Any]) -> dict[str, Any]:
        return {"type": "presence", "identifier": identifier, "message": message}

    async with on_cable(cable_server) as one, on_cable(cable_server) as two:
        await one.subscribe(identifier, presence={"id": "ada", "info": {"a": 1}})
        joined = told({"id": "ada", "info": {"a": 1}, "type": "join"})
        assert await one.hear() == joined
        await two.subscribe(identifier)
        await two.say("presence", identifier, data={})
        records = [{"info": {"a": 1}, "id": "ada"}]
        assert await two.hear() == told({"type": "info", "total": 1, "records": records})
        # Another session of the same member is announced neither when it joins nor when it leaves.
        await two.say("join", identifier, presence={"id": "ada", "info": {}})
        await two.say("leave", identifier)
        await two.say("presence", identifier, data={"return_records": False})
        assert await two.hear() == told({"type": "info", "total": 1})
        # A drop is announced only after the TTL.
        await one.socket.close()
        assert await two.is_silent(0.5)
        assert await two.hear() == told({"id": "ada", "type": "leave"})
        await two.say("join", identifier, presence={"id": "bob", "info": None})
        assert (await two.hear())["message"]["id"] == "bob"
        await two.say("unsubscribe", identifier)
        await two.subscribe(identifier)
        await two.say("presence", identifier)
        assert await two.hear() == told({"type": "info", "total": 0, "records": []})


async def test_a_client_joins_as_its_token_says(cable_server: Server, stream: str) -> None:
    identifier = pubsub(stream)
    mallory = token('{"user":"mallory"}')
    async with on_cable(cable_server) as watcher, on_cable(cable_server, f"jid={mallory}") as cable:
        await watcher.subscribe(identifier)
        await cable.subscribe(identifier)
        await cable.say("join", identifier, presence={"id": "alice"})
        assert (await cable.hear())["message"]["type"] == "reject"
        await cable.say("join", identifier, presence={"id": "mallory"})
        for each in (cable, watcher):
            assert (await each.hear())["message"] == {
                "id": "mallory",
                "info": None,
                "type": "join",
            }


async def test_a_client_that_reconnects_in_time_stays_present(
    cable_server: Server, stream: str
) -> None:
    identifier = pubsub(stream)
    async with on_cable(cable_server) as watcher:
        await watcher.subscribe(identifier)
        async with on_cable(cable_server) as cable:
            await cable.subscribe(identifier, presence={"id": "ada"})
            assert (await watcher.hear())["message"]["type"] == "join"
        async with on_cable(cable_server) as cable:
            await cable.subscribe(identifier, presence={"id": "ada"})
            assert await watcher.is_silent(1.5)
