"""`/ds` beside the cable: pages that open before the first broadcast, and any signed name."""

from __future__ import annotations

import json
from contextlib import closing
from urllib.parse import quote

import httpx
import pytest

from devtools.server import Server
from tailrace.auth.signed_names import sign
from tests.support.cable import SECRET, BroadcastClient, on_cable, signed
from tests.support.events import EventStream
from tests.support.wire import Connection


@pytest.mark.parametrize("room", ["a/b c", "tab\tand\nbreak", "\u0085"])
async def test_a_name_verifies_subscribes_and_delivers(
    cable_server: Server, broadcast: BroadcastClient, stream: str, room: str
) -> None:
    name = f"rooms/{stream}/{room}"
    headers = {"x-signed": sign(name, SECRET)}
    path = quote(name)
    with closing(Connection(cable_server.port)) as connection:
        empty = connection.ask("GET", f"/ds/{path}", headers)
        assert (empty.status, empty.body) == (200, b"[]")
        events = EventStream(connection, path, headers=headers, mount="/ds").caught_up()
        async with on_cable(cable_server) as cable:
            await cable.subscribe(signed(name))
            broadcast(name, '{"a":1}')
            assert await cable.messages(1) == [{"a": 1}]
        assert json.loads(events.pair()[0]) == [{"a": 1}]


def test_without_a_credential_for_it_no_stream_is_empty(http: httpx.Client, stream: str) -> None:
    other = {"x-signed": sign("rooms/other", SECRET)}
    assert http.get(f"/ds/rooms/{stream}").status_code == 401
    assert http.get(f"/ds/rooms/{stream}", headers=other).status_code == 401
    assert http.get(f"/ds/{stream}").json() == []
