"""Carries out the planned faults of a round."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from devtools.chaos.calls import HOST, PREFIX, NoAnswer
from devtools.chaos.plan import Fault, Kind, Round
from devtools.chaos.report import Report
from devtools.chaos.site import Node, Site, check_memory
from devtools.fault_proxy.proxy import ROUGH
from devtools.load.client import Address, Connection
from devtools.load.wire import render

DEAD_SECONDS: Final = 0.5
"""The longest time between a kill and the start after it."""
FILL_SECONDS: Final = 0.05
FLOOD_BYTES: Final = 200_000
RECEIVE_BYTES: Final = 4096


class Faults:
    def __init__(self, site: Site, plan: Round, report: Report, stream: str) -> None:
        """`stream`: a stream that slow readers may read."""
        self._site = site
        self._report = report
        self._stream = PREFIX + stream
        self._plan = plan
        self._chance = plan.chance("faults")
        self._kinds: Mapping[Kind, Callable[[Fault, Node], Awaitable[None]]] = {
            Kind.KILL: self._kill,
            Kind.PAUSE: self._pause,
            Kind.CLOCK: self._clock,
            Kind.DISK: self._disk,
            Kind.SLOW: self._slow,
            Kind.FLOOD: self._flood,
            Kind.ENGINE: self._engine,
            Kind.OUTAGE: self._outage,
        }

    async def run(self) -> None:
        """Return when all faults are over, and all servers run and are well."""
        async with asyncio.TaskGroup() as group:
            for fault in self._plan.faults:
                group.create_task(self._run(fault))

    async def _run(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at)
        node = self._site.nodes[fault.server]
        await self._kinds[fault.kind](fault, node)
        self._report.count(f"fault: {fault.kind}")

    async def _kill(self, _: Fault, node: Node) -> None:
        async with node.lock:
            await self._kill_and_start(node)

    async def _kill_and_start(self, node: Node) -> None:
        check_memory(node.server, self._report)
        await node.kill()
        if self._site.disk is not None:
            self._site.disk.make_room()
        await asyncio.sleep(self._chance.uniform(0, DEAD_SECONDS))
        async with self._site.weather:
            await node.start()
        self._report.count("starts after a kill")

    async def _pause(self, fault: Fault, node: Node) -> None:
        async with node.lock:
            node.server.signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(fault.seconds)
            finally:
                node.server.signal(signal.SIGCONT)

    async def _clock(self, fault: Fault, node: Node) -> None:
        node.set_clock(fault.amount)

    async def _disk(self, fault: Fault, node: Node) -> None:
        disk = self._site.disk
        if disk is None:
            return
        end = asyncio.get_running_loop().time() + fault.seconds
        async with node.lock:
            try:
                while asyncio.get_running_loop().time() < end:
                    # The server may free some of it.
                    disk.fill()
                    await asyncio.sleep(FILL_SECONDS)
                if fault.amount:
                    await self._kill_and_start(node)
            finally:
                disk.make_room()

    async def _engine(self, fault: Fault, _: Node) -> None:
        proxy = self._site.proxy
        assert proxy is not None
        async with self._site.weather:
            proxy.weights = ROUGH
            await asyncio.sleep(fault.seconds)
            proxy.weights = None

    async def _outage(self, fault: Fault, _: Node) -> None:
        proxy = self._site.proxy
        assert proxy is not None
        async with self._site.weather:
            proxy.outage = True
            await asyncio.sleep(fault.seconds)
            proxy.outage = False

    # Clients that do harm

    async def _slow(self, fault: Fault, node: Node) -> None:
        post = render("POST", self._stream, {"Content-Type": "application/json"}, bytes(50_000))
        requests = [
            render("GET", f"{self._stream}?offset=-1&live=sse"),
            render("GET", f"{self._stream}?offset=-1") * 50,
            post[:60],
            post[:-20_000],
        ]
        address, stalled = Address(HOST, node.server.port), list[Stalled]()
        for number in range(fault.amount):
            with suppress(OSError):
                stalled.append(await address.connect(Stalled(requests[number % len(requests)])))
        await asyncio.sleep(fault.seconds)
        for client in stalled:
            client.transport.abort()

    async def _flood(self, fault: Fault, _: Node) -> None:
        end = asyncio.get_running_loop().time() + fault.seconds
        async with asyncio.TaskGroup() as group:
            for number in range(fault.amount):
                chance = self._plan.chance(f"flood {fault.at} {number}")
                group.create_task(self._flood_from_one(fault.server, chance, end))

    async def _flood_from_one(self, server: int, chance: random.Random, end: float) -> None:
        caller = self._site.caller({})
        requests = [
            ("GET", f"{PREFIX}private?offset=-1&live=long-poll", None),
            ("PUT", f"{PREFIX}private", b"x"),
            ("POST", f"{PREFIX}private", bytes(FLOOD_BYTES)),
            ("DELETE", f"{PREFIX}private", None),
            ("GET", "/v1/streams", None),
            ("POST", "/_broadcast", b'{"stream":"private","data":"1"}'),
        ]
        while asyncio.get_running_loop().time() < end:
            method, path, body = chance.choice(requests)
            with suppress(NoAnswer):
                await caller.ask(server, method, path, None, body, expected=(401,))
                self._report.count("requests refused without credentials")
        caller.close()


class Stalled(Connection):
    """A client that sends something and reads nothing."""

    def __init__(self, request: bytes) -> None:
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self.transport.pause_reading()
        self.transport.write(self._request)
