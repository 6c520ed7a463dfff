"""Streams that do not stay: forks that are read and deleted, and streams that expire."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from devtools.chaos.calls import PREFIX, NoAnswer, Unexpected
from devtools.chaos.ledger import render_message
from devtools.chaos.message_stream import JSON, PAUSE, MessageStream, read_names
from devtools.linearizability.checker import offset_of
from tailrace.log.expiry import renewal_slack

TTL_SECONDS: Final = 2
LATE_SECONDS: Final = 0.5


async def fork(stream: MessageStream, reader: str) -> None:
    """Fork a stream where it has been, append to the fork, read it whole, and delete it."""
    chance, caller, number = stream.chance(reader), stream.caller, 0
    while not stream.done.is_set():
        number += 1
        target = f"{PREFIX}{stream.ledger.path}-{reader}-{number}"
        offset = chance.choice(stream.ledger.offsets)
        headers = {
            **JSON,
            "Stream-Forked-From": stream.target,
            "Stream-Fork-Offset": offset,
        }
        server = stream.any_server(chance)
        await caller.insist(server, "PUT", target, headers, b"", expected=(200, 201))
        own = f"{reader}.{number}"
        stored = await _append_once(stream, chance, target, own)
        names = await read_names(caller, stream.any_server(chance), target)
        inherited = offset_of(offset)
        mine = names[inherited:]
        if mine != [own] and (stored or mine):
            raise Unexpected(f"{target} holds {mine} after its source's {inherited} messages")
        # What the fork shows of its source is compared with the source in the end.
        stream.ledger.sighting(f"{reader} through fork {number}").names += names[:inherited]
        await _delete(stream, server, target)
        stream.report.count("forks read and deleted")
        await asyncio.sleep(chance.uniform(0, 20 * PAUSE))


async def expire(stream: MessageStream, reader: str, *, exact: bool) -> None:
    """Create streams with a TTL: they are there until it has passed, and then no more.

    `exact`: the clocks of the servers are right, so that it can be judged when a stream ends."""
    chance, caller, number = stream.chance(reader), stream.caller, 0
    loop = asyncio.get_running_loop()
    slack = renewal_slack(TTL_SECONDS) / 1000 + LATE_SECONDS
    while not stream.done.is_set():
        number += 1
        target = f"{PREFIX}{stream.ledger.path}-{reader}-{number}"
        begun = loop.time()
        ttl = {**JSON, "Stream-TTL": str(TTL_SECONDS)}
        await caller.insist(0, "PUT", target, ttl, b"", expected=(200, 201))
        try:
            response = await caller.ask(
                stream.any_server(chance), "GET", target, expected=(200, 404)
            )
        except NoAnswer:
            continue
        lived = loop.time() - begun
        if exact and response.status == 404 and lived < TTL_SECONDS:
            raise Unexpected(f"{target} expired after {lived:.1f} s")
        await asyncio.sleep(TTL_SECONDS + slack)
        response = await caller.insist(
            stream.any_server(chance), "GET", target, expected=(200, 404)
        )
        if exact and response.status != 404:
            raise Unexpected(f"{target} is there after {loop.time() - begun:.1f} s")
        stream.report.count("streams expired")


async def _append_once(
    stream: MessageStream, chance: random.Random, target: str, name: str
) -> bool:
    """Append a message without retries; returns whether it was acknowledged."""
    body = render_message(name).encode()
    try:
        response = await stream.caller.ask(
            stream.any_server(chance), "POST", target, JSON, body, expected=(204,)
        )
    except NoAnswer:
        return False
    return response.status == 204


async def _delete(stream: MessageStream, server: int, target: str) -> None:
    """Delete a stream; a repeated request may find it gone."""
    await stream.caller.insist(server, "DELETE", target, expected=(204, 404))
    await stream.caller.insist(server, "GET", target, expected=(404,))
