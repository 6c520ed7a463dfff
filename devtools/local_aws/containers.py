"""The containers of a deployment as processes, and the load balancer in front of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from devtools.processes import START_SECONDS
from devtools.server import Server

MOST_CONTAINERS: Final = 2
READ_BYTES: Final = 64 << 10
BACKLOG: Final = 4096


class LoadBalancer:
    """Gives each connection to the target that has the fewest, as the deployed one does with
    requests: the local edge makes a connection for each of them."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        """Method and target of every request."""
        self.port = 0
        self._connections: Counter[int] = Counter()
        """By the port of each target that gets new ones."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Self:
        self._server = await asyncio.start_server(
            self._balance, "127.0.0.1", 0, limit=READ_BYTES, backlog=BACKLOG
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def register(self, port: int) -> None:
        self._connections[port] = 0

    def deregister(self, port: int) -> None:
        """Give no new connections to a target; those that it has go on."""
        del self._connections[port]

    def connections(self, port: int) -> int:
        return self._connections[port]

    async def _balance(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # The other side may break off at any time.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
                self.requests.append((method, target))
                await self._forward(head, reader, writer)
            finally:
                writer.close()

    async def _forward(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        port, opened = await self._connect()
        if opened is None:
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            return
        answer, request = opened
        self._connections[port] += 1
        try:
            request.write(head)
            sending = asyncio.create_task(_pipe(reader, request))
            try:
                await _pipe(answer, writer)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        finally:
            request.close()
            if port in self._connections:
                self._connections[port] -= 1

    async def _connect(
        self,
    ) -> tuple[int, tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]:
        """Connect to a target; one that has died is passed over, as an unhealthy one is."""
        for port in sorted(self._connections, key=self._connections.__getitem__):
            with contextlib.suppress(OSError):
                return port, await asyncio.open_connection("127.0.0.1", port)
        return 0, None


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(READ_BYTES):
        writer.write(data)
        await writer.drain()


class Containers:
    """Processes of the server, with the variables that the task definition gives."""

    def __init__(self, folder: Path, environment: Mapping[str, str], count: int) -> None:
        folder.mkdir(parents=True)
        self.balancer = LoadBalancer()
        settings = {
            **environment,
            # Here all of them share one network.
            "TAILRACE_HOST": "127.0.0.1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        self.servers = [Server(folder / f"container-{number}", settings) for number in range(count)]
        for server in self.servers:
            # Nothing of this machine's settings reaches a container.
            server.env = {"PATH": os.environ["PATH"], "HOME": str(folder), **settings}

    def start(self, number: int) -> None:
        server = self.servers[number].start()
        self.balancer.register(server.port)

    def drain(self, number: int) -> None:
        """End a container as ECS does: it gets no new requests, and is then told to stop."""
        server = self.servers[number]
        self.balancer.deregister(server.port)
        assert server.stop() == 0

    def kill(self, number: int) -> None:
        server = self.servers[number]
        server.kill()
        self.balancer.deregister(server.port)

    def start_missing(self) -> None:
        """Start those that were killed or drained."""
        for number, server in enumerate(self.servers):
            if not server.running:
                self.start(number)

    def stop(self) -> None:
        for server in self.servers:
            server.kill()

    def output(self) -> str:
        return "\n".join(
            f"--- {server.data.name} ---\n{server.output()}"
            for server in self.servers
            if server.log.exists()
        )

    def wait_for_connections(self, number: int, count: int) -> None:
        """Wait until a container has so many connections."""
        deadline = time.monotonic() + START_SECONDS
        while self.balancer.connections(self.servers[number].port) < count:
            assert time.monotonic() < deadline, f"fewer than {count} connections"
            time.sleep(0.05)
