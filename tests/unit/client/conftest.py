"""Operations carried out without I/O: planned answers, and what was asked for."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from tailrace.client.exchange import (
    Emit,
    Fetch,
    GetToken,
    HttpAnswer,
    HttpRequest,
    LostConnection,
    Now,
    Open,
    Operation,
    Pause,
    Receive,
)


@dataclass
class Script:
    """Plays the network: answers in order, and a clock that pauses move."""

    answers: deque[Any] = field(default_factory=deque)
    requests: list[HttpRequest] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    tokens: deque[str] = field(default_factory=deque)
    emitted: list[Any] = field(default_factory=list)
    clock: float = 0.0
    pieces: deque[Any] = field(default_factory=deque)

    def will(self, status: int = 200, body: bytes = b"", **headers: Any) -> Script:
        named = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        self.answers.append(HttpAnswer(status, named, body))
        return self

    def will_stream(self, *pieces: bytes | LostConnection, **headers: Any) -> Script:
        """A response of server-sent events, in pieces; a LostConnection cuts it off."""
        self.will(200, content_type="text/event-stream", **headers)
        self.answers.append(deque(pieces))
        return self

    def will_lose(self, *, delivered: bool = True) -> Script:
        self.answers.append(LostConnection("connection reset", delivered=delivered))
        return self

    def run(self, operation: Operation[Any]) -> Any:
        try:
            effect = next(operation)
            while True:
                try:
                    outcome = self.perform(effect)
                except LostConnection as lost:
                    effect = operation.throw(lost)
                else:
                    effect = operation.send(outcome)
        except StopIteration as stop:
            return stop.value

    def perform(self, effect: Any) -> Any:
        match effect:
            case GetToken(refresh):
                if refresh and len(self.tokens) > 1:
                    self.tokens.popleft()
                return self.tokens[0] if self.tokens else None
            case Pause(seconds):
                self.pauses.append(seconds)
                self.clock += seconds
            case Now():
                return self.clock
            case Emit(value):
                self.emitted.append(value)
            case Fetch(request) | Open(request):
                self.requests.append(request)
                answer = self.answers.popleft()
                if isinstance(answer, LostConnection):
                    raise answer
                if self.answers and isinstance(self.answers[0], deque):
                    self.pieces = self.answers.popleft()
                return answer
            case Receive():
                piece = self.pieces.popleft() if self.pieces else b""
                if isinstance(piece, LostConnection):
                    raise piece
                return piece
        return None

    @property
    def queries(self) -> list[str]:
        return [request.url.partition("?")[2] for request in self.requests]


@pytest.fixture
def script() -> Script:
    return Script()
