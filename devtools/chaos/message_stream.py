"""Writers and readers of one stream of messages, in every way that streams have.

Writers append plainly, as producers that retry, with Stream-Seq, and by broadcasts. Readers follow
by long-polls, server-sent events and WebSockets, and catch up from anywhere.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException
from websockets.typing import Subprotocol

from devtools.chaos.calls import (
    ANSWER_SECONDS,
    HOST,
    PREFIX,
    RETRY_SECONDS,
    Caller,
    Headers,
    NoAnswer,
    Unexpected,
    required,
)
from devtools.chaos.ledger import Ledger, Sighting, name_of, names_in, render_message
from devtools.chaos.plan import Round
from devtools.chaos.report import Report
from devtools.chaos.text_streams import producer_headers
from devtools.linearizability.checker import offset_of
from devtools.load.wire import Response
from tailrace.log.offsets import START
from tailrace.log.state import Producer

JSON: Final = {"Content-Type": "application/json"}
PAUSE: Final = 0.03
CONNECTION_SECONDS: Final = (0.1, 4.0)
"""How long a live reader that comes and goes keeps a connection."""
CABLE: Final = Subprotocol("actioncable-v1-ext-json")
CLOSE_SECONDS: Final = 2.0
BROADCAST: Final = "/_broadcast"
SEEN: Final = "messages delivered live"
STORED: Final = "appends acknowledged"


class MessageStream:
    """One stream of messages, and the state that its writers and readers share."""

    def __init__(self, path: str, caller: Caller, report: Report, plan: Round) -> None:
        self.ledger = Ledger(path)
        self.caller = caller
        self.report = report
        self.chance = plan.chance
        self.lenient = plan.lenient
        self.done = asyncio.Event()
        """Set when no more is to be written."""
        self.target = PREFIX + path

    async def create(self) -> None:
        await self.caller.insist(0, "PUT", self.target, JSON, b"", expected=(200, 201))
        self.ledger.offsets.append(START)

    def any_server(self, chance: random.Random) -> int:
        return chance.randrange(len(self.caller.ports))

    async def content(self) -> list[str]:
        """All that the stream holds."""
        return await read_names(self.caller, 0, self.target)

    # Writers

    async def write_plainly(self, writer: str) -> None:
        await self._write(writer, lambda chance, body, _: self._post(chance, JSON, body))

    async def write_in_sequence(self, writer: str) -> None:
        await self._write(
            writer,
            lambda chance, body, number: self._post(
                chance, {**JSON, "Stream-Seq": f"{number:08d}"}, body
            ),
        )

    async def broadcast(self, writer: str) -> None:
        async def send(chance: random.Random, body: str, _: int) -> Response:
            command = json.dumps({"stream": self.ledger.path, "data": body}).encode()
            server = self.any_server(chance)
            return await self.caller.ask(server, "POST", BROADCAST, JSON, command, expected=(201,))

        await self._write(writer, send)

    async def produce(self, writer: str) -> None:
        """Append with a producer's sequence, each again until its outcome is known."""

        async def send(chance: random.Random, body: str, number: int) -> Response:
            headers = {**JSON, **producer_headers(Producer(writer, 0, number))}
            return await self.caller.insist(
                self.any_server(chance), "POST", self.target, headers, body.encode(),
                expected=(200, 204),
            )  # fmt: skip

        await self._write(writer, send)

    async def _write(self, writer: str, send: Callable[[random.Random, str, int], Any]) -> None:
        """Send message after message; what gets no answer may be stored or not."""
        chance = self.chance(writer)
        number = 0
        while not self.done.is_set():
            name = f"{writer}.{number}"
            self.ledger.sent.add(name)
            try:
                response: Response = await send(chance, render_message(name), number)
            except NoAnswer:
                self.report.count("appends without an answer")
                await asyncio.sleep(RETRY_SECONDS)
            else:
                if response.status < 500:
                    self.ledger.acknowledged.append(name)
                    self.report.count(STORED)
                    if offset := response.header("Stream-Next-Offset"):
                        self.ledger.offsets.append(offset)
            number += 1
            await asyncio.sleep(chance.uniform(0, 2 * PAUSE))

    async def _post(self, chance: random.Random, headers: Headers, body: str) -> Response:
        server = self.any_server(chance)
        return await self.caller.ask(
            server, "POST", self.target, headers, body.encode(), expected=(200, 204)
        )

    # Readers

    async def catch_up(self, reader: str) -> None:
        """Read from some offset to the end, again and again."""
        chance = self.chance(reader)
        while not self.done.is_set():
            offset = chance.choice(self.ledger.offsets)
            sighting = self.ledger.sighting(reader, offset_of(offset))
            try:
                while True:
                    response = await self.caller.ask(
                        self.any_server(chance), "GET", f"{self.target}?offset={offset}",
                        expected=(200,),
                    )  # fmt: skip
                    if response.status >= 500:
                        break
                    offset = self._see(sighting, names_in(response.body), response)
                    if response.header("Stream-Up-To-Date"):
                        break
            except NoAnswer:
                pass
            await asyncio.sleep(chance.uniform(0, 10 * PAUSE))

    async def long_poll(self, reader: str) -> None:
        chance, sighting = self.chance(reader), self.ledger.sighting(reader, follows=True)
        offset = START
        while True:
            response = await self.caller.insist(
                self.any_server(chance), "GET", f"{self.target}?offset={offset}&live=long-poll",
                expected=(200, 204),
            )  # fmt: skip
            names = names_in(response.body) if response.status == 200 else []
            offset = self._see(sighting, names, response)
            self.report.count(SEEN, len(names))

    async def follow_events(self, reader: str, *, stays: bool) -> None:
        """Follow by server-sent events; data counts with the offset after it."""
        chance, sighting = self.chance(reader), self.ledger.sighting(reader, follows=True)
        offset = START
        while True:
            path = f"{self.target}?offset={offset}&live=sse"
            seconds = connection_seconds(chance, stays=stays)
            async for event in self.caller.events(self.any_server(chance), "GET", path, seconds):
                if event.kind == "data":
                    names = names_in(event.data.encode())
                    sighting.names += names
                    self.report.count(SEEN, len(names))
                elif event.kind == "control":
                    offset = json.loads(event.data)["streamNextOffset"]
                    self._check_position(sighting, offset)
            # Data whose control event did not arrive comes again.
            del sighting.names[offset_of(offset) :]

    async def subscribe(self, reader: str, *, stays: bool) -> None:
        """Follow over WebSockets, and resume after the last message."""
        chance, sighting = self.chance(reader), self.ledger.sighting(reader, follows=True)
        path = self.ledger.path
        identifier = json.dumps({"channel": "$pubsub", "stream_name": path})
        epoch = ""
        while True:
            place = {"epoch": epoch, "offset": sighting.end}
            history = {"since": 1, "streams": {path: place} if epoch else {}}
            command = {"command": "subscribe", "identifier": identifier, "history": history}
            port = self.caller.ports[self.any_server(chance)]
            async for frame in cable_frames(
                port, connection_seconds(chance, stays=stays), json.dumps(command)
            ):
                if "message" in frame and "offset" in frame:
                    epoch = frame["epoch"]
                    sighting.names.append(name_of(frame["message"]))
                    self.report.count(SEEN)
                    if frame["offset"] != sighting.end:
                        raise Unexpected(f"{path}: {frame['offset']} after {sighting.end - 1}")
                elif frame.get("type") == "reject_history" and self.lenient:
                    # The history could not be read; the reader asks for it again.
                    self.report.count("histories rejected")
                    break
                elif frame.get("type") in ("reject_subscription", "reject_history"):
                    raise Unexpected(f"{path}: {frame}")

    def _see(self, sighting: Sighting, names: list[str], response: Response) -> str:
        sighting.names += names
        offset = required(response, "Stream-Next-Offset")
        self._check_position(sighting, offset)
        return offset

    def _check_position(self, sighting: Sighting, offset: str) -> None:
        if offset_of(offset) != sighting.end:
            raise Unexpected(f"{sighting.reader} got {sighting.end} messages, but is at {offset}")


async def read_names(caller: Caller, server: int, path: str) -> list[str]:
    """The names of all messages that a stream holds."""
    return [name async for body in caller.bodies(server, path) for name in names_in(body)]


def connection_seconds(chance: random.Random, *, stays: bool) -> float:
    return float("inf") if stays else chance.uniform(*CONNECTION_SECONDS)


async def cable_frames(port: int, seconds: float, command: str) -> AsyncIterator[dict[str, Any]]:
    """Send a command to the cable, and yield its frames until it ends or the time is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    try:
        async with connect(
            f"ws://{HOST}:{port}/cable",
            subprotocols=[CABLE],
            proxy=None,
            max_size=None,
            open_timeout=ANSWER_SECONDS,
            close_timeout=CLOSE_SECONDS,
        ) as socket:
            await socket.send(command)
            while (left := end - loop.time()) > 0:
                async with asyncio.timeout(left):
                    text = await socket.recv()
                yield json.loads(text)
    except (OSError, WebSocketException):  # A timeout is an OSError.
        await asyncio.sleep(RETRY_SECONDS)
