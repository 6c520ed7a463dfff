"""A client of a deployment's WebSocket API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import ClientConnection, connect

from devtools.local_deploy.deployment import Deployment

SECONDS = 20.0
"""How long a message may take, including cold starts of functions."""


def pubsub(stream: str) -> str:
    """The identifier of a public stream."""
    return json.dumps({"channel": "$pubsub", "stream_name": stream})


class Cable:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.sid: str = self._frame()["sid"]

    def subscribe(self, stream: str) -> None:
        self._socket.send(json.dumps({"command": "subscribe", "identifier": pubsub(stream)}))
        confirmed = {"type": "confirm_subscription", "identifier": pubsub(stream)}
        heard = self._frame()
        assert heard == confirmed, heard

    def message(self) -> Any:
        return self._frame()["message"]

    def ping(self) -> None:
        """Wait for a ping."""
        while self._next().get("type") != "ping":
            pass

    def _frame(self) -> Mapping[str, Any]:
        """The next frame that is not a ping."""
        while (frame := self._next()).get("type") == "ping":
            pass
        return frame

    def _next(self) -> Mapping[str, Any]:
        frame: Mapping[str, Any] = json.loads(self._socket.recv(SECONDS))
        return frame


@contextmanager
def connected(deployment: Deployment, secret: str) -> Iterator[Cable]:
    """Connect like the distribution, but without offering a subprotocol.

    ministack does not select one, and a client that offers some would disconnect."""
    with connect(
        deployment.cable_url(), additional_headers={"x-tailrace-origin": secret}, proxy=None
    ) as socket:
        yield Cable(socket)
