"""A reader of `/v1/read`, and the plain model that it is compared with: a text per stream."""

from __future__ import annotations

import json
import random
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.support.events import parsed

KINDS: Final = ("application/json", "text/plain", "application/octet-stream")
CHANGES: Final = ("append",) * 6 + ("close", "delete")


@dataclass
class Model:
    """A stream as its writer knows it."""

    path: str
    kind: str = ""
    text: str = ""
    """Its messages, a line for each; they tell their stream's incarnation and their place."""
    exists: bool = False
    closed: bool = False
    incarnation: int = 0

    def change(self, client: httpx.Client, chance: random.Random) -> None:
        """Change the stream at random, or create it."""
        url = f"/v1/stream/{self.path}"
        if not self.exists:
            self.kind, self.text, self.closed = chance.choice(KINDS), "", False
            self.exists, self.incarnation = True, self.incarnation + 1
            answer = client.put(url, headers={"content-type": self.kind})
            assert answer.status_code == 201
            return
        match chance.choice(CHANGES):
            case "append" if not self.closed:
                first, count = self.text.count("\n"), chance.choice((1, 1, 3))
                filling = "x" * chance.choice((0, 0, 40, 700))
                lines = [f"{self.incarnation}.{n}{filling}" for n in range(first, first + count)]
                text = "".join(f"{line}\n" for line in lines)
                body = json.dumps(lines) if self.kind == KINDS[0] else text
                answer = client.post(url, content=body, headers={"content-type": self.kind})
                self.text += text
            case "close":
                answer, self.closed = client.post(url, headers={"stream-closed": "true"}), True
            case "delete":
                answer, self.exists = client.delete(url), False
            case _:
                return
        assert answer.status_code == 204


@dataclass
class ManyReader:
    """Follows streams in all modes, each of which goes on where the one before it ended."""

    client: httpx.Client
    paths: Sequence[str]
    chance: random.Random
    offset: str = "-1"
    texts: dict[str, str] = field(default_factory=dict)
    """The text that it has of each stream that exists."""
    closed: set[str] = field(default_factory=set)

    def catch_up(self) -> None:
        """Read until the answer says that there is no more."""
        while True:
            answer = self._get()
            news = self._told(answer)
            assert sorted(news) == sorted(self.paths)
            if answer.headers.get("stream-up-to-date"):
                return

    def poll(self) -> None:
        """Take one answer of a long-poll."""
        answer = self._get(live="long-poll")
        if answer.status_code == 200:
            assert self._told(answer)
        self.offset = answer.headers["stream-next-offset"]

    def follow(self) -> None:
        """Read events over connections that break anywhere, as a browser does, until there is no
        more: its URL stays the same, and data counts when its control event has come."""
        url, event_id = self.offset, ""
        while True:
            cut = self.chance.choice((150, 1500, 1 << 30))
            received = b""
            headers = {"last-event-id": event_id} if event_id else {}
            query = {"stream": self.paths, "offset": url, "live": "sse"}
            with self.client.stream("GET", "/v1/read", params=query, headers=headers) as answer:
                if answer.status_code == 204:
                    return
                assert answer.status_code == 200
                for chunk in answer.iter_raw():
                    received += chunk[: cut - len(received)]
                    if len(received) == cut or b'"upToDate":true' in received:
                        break
            waiting: list[tuple[str, Any]] = []
            for kind, data in parsed(received):
                if kind != "control":
                    waiting.append((kind, json.loads(data)))
                    continue
                for each, fields in waiting:
                    self._take(each, fields)
                waiting.clear()
                control = json.loads(data)
                self.offset = event_id = control["streamNextOffset"]
                if "upToDate" in control:
                    return

    def check(self, models: Sequence[Model]) -> None:
        """Compare what it has with the models of its streams."""
        for model in models:
            if model.path in self.paths:
                assert self.texts.get(model.path, "") == (model.text if model.exists else "")
                assert (model.path in self.closed) == (model.exists and model.closed)

    def _get(self, **query: str) -> httpx.Response:
        params = {"stream": self.paths, "offset": self.offset, **query}
        answer = self.client.get("/v1/read", params=params)
        assert answer.status_code in (200, 204), answer.text
        return answer

    def _told(self, answer: httpx.Response) -> Sequence[str]:
        for fields in answer.json()["streams"]:
            error = fields.get("error")
            if error is not None:
                code = error["code"]
                self._take("missing" if code == "STREAM_NOT_FOUND" else "stale", fields)
            if "data" in fields:
                self._take("data", fields)
            if fields["closed"]:
                self._take("closed", fields)
        self.offset = answer.json()["nextOffset"]
        return [fields["stream"] for fields in answer.json()["streams"]]

    def _take(self, kind: str, fields: dict[str, Any]) -> None:
        path = fields["stream"]
        if kind in ("missing", "deleted", "stale"):
            self.texts.pop(path, None)
            self.closed.discard(path)
        elif kind == "closed":
            self.closed.add(path)
        else:
            assert kind == "data"
            data = fields["data"]
            if isinstance(data, list):
                data = "".join(f"{message}\n" for message in data)
            elif "encoding" in fields:
                data = b64decode(data).decode()
            self.texts[path] = self.texts.get(path, "") + data
