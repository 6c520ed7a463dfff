"""An application with channels of its own, which answers AnyCable's RPC over HTTP."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self

SUCCESS, FAILURE = 1, 2


class Received(NamedTuple):
    """A call, as the application got it."""

    method: str
    body: dict[str, Any]
    headers: dict[str, str]


class Raw(NamedTuple):
    """An answer that is not of the protocol."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})


Handler = Callable[[Received], Any]
"""Returns the fields of the answer, or a Raw one; None closes the connection without one."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A caller may break its connection off at any time."""


class Application:
    """ChatChannel follows the stream of its room and those that its client asks for; its state
    counts the actions. Clients connect unless their cookie is `user=eve`."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.script: deque[Handler] = deque()
        """Handlers of the next calls, instead of the channel."""
        self.busy = self.most_busy = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._request_handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/_anycable"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _: type[BaseException] | None,
        __: BaseException | None,
        ___: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def calls(self, method: str) -> list[dict[str, Any]]:
        return [each.body for each in self.received if each.method == method]

    def answer(self, received: Received) -> Any:
        with self._lock:
            self.received.append(received)
            self.busy += 1
            self.most_busy = max(self.busy, self.most_busy)
            handler = self.script.popleft() if self.script else HANDLERS[received.method]
        try:
            return handler(received)
        finally:
            with self._lock:
                self.busy -= 1

    def _request_handler(self) -> type[BaseHTTPRequestHandler]:
        application = self

        class Request(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                method = self.path.removeprefix("/_anycable/")
                answer = application.answer(Received(method, body, headers))
                if answer is None:
                    self.close_connection = True
                    return
                if not isinstance(answer, Raw):
                    answer = Raw(body=json.dumps(answer).encode())
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: Any) -> None:
                pass

        return Request


def connect(received: Received) -> dict[str, Any]:
    cookie = received.body["env"]["headers"].get("cookie", "user=anonymous")
    if cookie == "user=eve":
        refusal = {"type": "disconnect", "reason": "unauthorized"}
        return {"status": FAILURE, "transmissions": [json.dumps(refusal)]}
    user = cookie.removeprefix("user=")
    welcome = {"type": "welcome", "sid": received.headers["x-anycable-meta-sid"]}
    return {
        "status": SUCCESS,
        "identifiers": json.dumps({"user": user}),
        "transmissions": [json.dumps(welcome)],
        "env": {"cstate": {"user": user}},
    }


def command(received: Received) -> dict[str, Any]:
    body = received.body
    identifier = body["identifier"]
    fields, user = json.loads(identifier), body["env"]["cstate"].get("user", "")
    if fields["channel"] != "ChatChannel" or fields.get("room") == "secret":
        rejection = {"type": "reject_subscription", "identifier": identifier}
        return {"status": FAILURE, "transmissions": [json.dumps(rejection)]}
    if body["command"] == "subscribe":
        stream = f"rooms/{fields['room']}"
        confirmation = {"type": "confirm_subscription", "identifier": identifier}
        state = {"count": "0", "$w": stream, "$p": stream}
        return {
            "status": SUCCESS,
            "transmissions": [json.dumps(confirmation)],
            "streams": [stream],
            "env": {"istate": state},
        }
    if body["command"] == "unsubscribe":
        return {"status": SUCCESS, "stop_streams": True}
    return {"status": SUCCESS, **perform(identifier, json.loads(body["data"]), body, user)}


def perform(
    identifier: str, data: dict[str, Any], body: dict[str, Any], user: str
) -> dict[str, Any]:
    match data["action"]:
        case "echo":
            count = int(body["env"]["istate"]["count"]) + 1
            message = {"echo": data["text"], "user": user, "count": count}
            frame = json.dumps({"identifier": identifier, "message": message})
            return {"transmissions": [frame], "env": {"istate": {"count": str(count)}}}
        case "follow":
            return {"streams": [data["stream"]]}
        case "unfollow":
            return {"stopped_streams": [data["stream"]]}
        case "only":
            return {"stop_streams": True, "streams": [data["stream"]]}
        case "join":
            info = json.dumps({"name": user})
            return {"presence": {"type": "join", "id": user, "info": info}}
        case "leave":
            return {"presence": {"type": "leave", "id": user}}
        case _:
            return {"disconnect": True}


def disconnect(_: Received) -> dict[str, Any]:
    return {"status": SUCCESS}


HANDLERS: dict[str, Handler] = {"connect": connect, "command": command, "disconnect": disconnect}
