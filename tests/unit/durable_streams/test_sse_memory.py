"""The memory of readers of server-sent events that wait."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path

from tailrace.app import Application
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.settings import Settings
from tailrace.web.messages import Request, Streaming

SIZE = 1 << 20
READERS = 8


class Sink:
    """A sink that counts what is pushed, and drops it."""

    def __init__(self) -> None:
        self.received = 0
        self.complete = asyncio.Event()

    async def drain(self) -> None:
        pass

    def push(self, data: bytes) -> bool:
        self.received += len(data)
        if self.received > SIZE:
            self.complete.set()
        return True


async def test_a_reader_does_not_keep_what_it_has_sent(tmp_path: Path) -> None:
    application = Application(Settings(data=str(tmp_path / "data"), hot_bytes=0))
    await application.start()
    try:
        await application.streams.create("a", Create(content_type="text/plain"))
        await application.streams.append("a", Append(b"x" * SIZE, "text/plain"))
        sinks = [Sink() for _ in range(READERS)]
        tracemalloc.start()
        readers = []
        for sink in sinks:
            request = Request("GET", "/v1/stream/a", "offset=-1&live=sse", [], b"")
            answer = await application.routes.respond(request)
            assert isinstance(answer, Streaming)
            readers.append(asyncio.ensure_future(answer.run(sink)))
            del answer
        for sink in sinks:
            await sink.complete.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < READERS * SIZE / 4
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    finally:
        tracemalloc.stop()
        await application.stop()
