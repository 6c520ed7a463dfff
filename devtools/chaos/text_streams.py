"""Text streams over HTTP, as a target of the load whose history is checked."""

from __future__ import annotations

import asyncio
import random
from typing import Final, NoReturn

from devtools.chaos.calls import (
    PREFIX,
    Caller,
    Headers,
    NoAnswer,
    NotSent,
    Unexpected,
    error_code,
    required,
)
from devtools.linearizability.checker import Acknowledged, Duplicate
from devtools.linearizability.load import Piece
from devtools.load.wire import Response
from tailrace.errors import (
    OutcomeUnknown,
    ProducerFenced,
    ProducerGap,
    StaleOffset,
    StoreUnavailable,
    StreamClosed,
    StreamGone,
    StreamNotFound,
    StreamTooHot,
)
from tailrace.log.state import Producer

TEXT: Final = {"Content-Type": "text/plain"}
PAUSE: Final = (0.0, 0.04)
"""Seconds before an append: the load is to be mixed, not to be heavy."""


class TextStreams:
    """A target that calls one server."""

    def __init__(self, caller: Caller, server: int, chance: random.Random) -> None:
        self._caller = caller
        self._server = server
        self._chance = chance

    async def create(self, path: str) -> tuple[int, bool]:
        response = await self._change("PUT", path, TEXT, b"")
        self._require(path, response, 200, 201)
        # Only reads name the incarnation. Nobody else deletes the stream meanwhile.
        view = await self._caller.insist(
            self._server, "GET", f"{PREFIX}{path}?offset=now", expected=(200,)
        )
        return _incarnation(view), response.status == 201

    async def append(
        self, path: str, body: bytes, producer: Producer | None, *, close: bool
    ) -> Acknowledged | Duplicate:
        await asyncio.sleep(self._chance.uniform(*PAUSE))
        headers = dict(TEXT) if body else {}
        if close:
            headers["Stream-Closed"] = "true"
        if producer is not None:
            headers |= producer_headers(producer)
        response = await self._change("POST", path, headers, body)
        self._require(path, response, 200, 204)
        offset = required(response, "Stream-Next-Offset")
        # A close without a body has 204 in both cases, and needs no distinction.
        duplicate = producer is not None and response.status == 204
        return Duplicate(offset) if duplicate else Acknowledged(offset)

    async def delete(self, path: str) -> None:
        self._require(path, await self._change("DELETE", path, {}, None), 204)

    async def read(self, path: str, start: str) -> Piece:
        try:
            response = await self._caller.ask(self._server, "GET", f"{PREFIX}{path}?offset={start}")
        except NoAnswer as error:
            raise StoreUnavailable(str(error)) from None
        self._require(path, response, 200)
        return Piece(
            (response.body,),
            required(response, "Stream-Next-Offset"),
            response.header("Stream-Up-To-Date") == "true",
            response.header("Stream-Closed") == "true",
            _incarnation(response),
        )

    async def _change(
        self, method: str, path: str, headers: Headers, body: bytes | None
    ) -> Response:
        try:
            return await self._caller.ask(self._server, method, PREFIX + path, headers, body)
        except NotSent as error:
            raise StoreUnavailable(str(error)) from None
        except NoAnswer as error:
            raise OutcomeUnknown(str(error)) from None

    def _require(self, path: str, response: Response, *expected: int) -> None:
        if response.status not in expected:
            raise_error(path, response)


def raise_error(path: str, response: Response) -> NoReturn:
    """Raise the error that a response describes."""
    code = error_code(response)
    match code:
        case OutcomeUnknown.code:
            raise OutcomeUnknown(code)
        case StreamNotFound.code:
            raise StreamNotFound(path)
        case StreamGone.code:
            raise StreamGone(path)
        case StaleOffset.code:
            raise StaleOffset(path)
        case StreamTooHot.code:
            raise StreamTooHot(code)
        case StreamClosed.code:
            raise StreamClosed(required(response, "Stream-Next-Offset"))
        case ProducerFenced.code:
            raise ProducerFenced(int(required(response, "Producer-Epoch")))
        case ProducerGap.code:
            expected = int(required(response, "Producer-Expected-Seq"))
            raise ProducerGap(expected, int(required(response, "Producer-Received-Seq")))
    if response.status >= 500:
        raise StoreUnavailable(code)
    raise Unexpected(f"{path}: {response.status} {response.body[:300]!r}")


def producer_headers(producer: Producer) -> dict[str, str]:
    return {
        "Producer-Id": producer.id,
        "Producer-Epoch": str(producer.epoch),
        "Producer-Seq": str(producer.seq),
    }


def _incarnation(response: Response) -> int:
    return int(required(response, "Cache-Tag").removeprefix("s-"), 16)
