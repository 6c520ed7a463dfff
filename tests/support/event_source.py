"""A client of server-sent events that reconnects as a browser does (WHATWG HTML)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx


class EventSource:
    """Follows a stream of JSON, or many, over as many responses as it takes."""

    def __init__(self, url: str, cut: Callable[[], int] = lambda: 1 << 60) -> None:
        """`cut`: after how many bytes the next connection breaks."""
        self.connections = 0
        self._url = url
        self._cut = cut
        self._last_id = ""
        self._retry = 3.0

    def messages(self) -> Iterator[Any]:
        """Iterate over the messages until the server says that there are no more."""
        batch: list[Any] = []
        for kind, data in self.events():
            if kind == "open":
                batch = []
            elif kind == "data":
                batch += json.loads(data)
            elif kind == "control":
                yield from batch
                batch = []

    def events(self) -> Iterator[tuple[str, str]]:
        """Iterate over kinds and data of events; each response begins with an event `open`."""
        headers = {"accept": "text/event-stream", "accept-encoding": "identity"}
        with httpx.Client(timeout=120, trust_env=False) as client:
            while True:
                if self._last_id:
                    headers["last-event-id"] = self._last_id
                try:
                    with client.stream("GET", self._url, headers=headers) as response:
                        if response.status_code != 200:
                            assert response.status_code == 204, response.read()
                            return
                        self.connections += 1
                        yield "open", ""
                        yield from self._parse(response.iter_raw())
                except httpx.TransportError:
                    pass  # The connection broke, or the server is restarting.
                # What a browser waits, but faster.
                time.sleep(self._retry / 20)

    def _parse(self, chunks: Iterator[bytes]) -> Iterator[tuple[str, str]]:
        rest, left = b"", self._cut()
        kind, data, id_ = "message", list[str](), self._last_id
        for chunk in chunks:
            *lines, rest = (rest + chunk[:left]).split(b"\n")
            for line in map(bytes.decode, lines):
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if not line:
                    self._last_id = id_
                    if data:
                        yield kind, "\n".join(data)
                    kind, data = "message", []
                elif name == "event":
                    kind = value
                elif name == "data":
                    data.append(value)
                elif name == "id":
                    id_ = value
                elif name == "retry":
                    self._retry = int(value) / 1000
            left -= len(chunk)
            if left <= 0:
                return
