"""Calls of the application, over HTTP.

Few calls are under way at once, since each occupies a thread of the application; others wait. A
call whose connection fails is repeated with pauses. Whatever else goes wrong, the application
counts as having failed: nobody but the client of that call notices.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

import httpx

from tailrace import metrics
from tailrace.limits import (
    CABLE_CALL_ANSWER_BYTES,
    CABLE_CALL_RETRY_SECONDS,
    CABLE_CALL_WAIT_SECONDS,
    CABLE_CLOSE_SECONDS,
    CABLE_DISCONNECT_CALLS,
)
from tailrace.protocols.action_cable.core.application import (
    FAILED,
    Answer,
    BadAnswer,
    Status,
    parse_answer,
)
from tailrace.protocols.action_cable.core.effects import ApplicationCall
from tailrace.settings import Settings

PAUSE: Final = 0.1
"""Seconds until the first repetition; each further pause is twice as long."""

logger = logging.getLogger("tailrace")


class ApplicationClient:
    def __init__(self, settings: Settings, key: bytes | None) -> None:
        """`key`: proves to the application that it is called by this server; None: nothing does."""
        self._url = settings.rpc_url.rstrip("/")
        self._headers = {
            b"content-type": b"application/json",
            b"x-anycable-meta-protov": b"v1",
            **({} if key is None else {b"authorization": b"Bearer " + key}),
        }
        self._seconds = settings.rpc_request_timeout
        self._slots = asyncio.Semaphore(settings.rpc_concurrency)
        # Without httpx's client, which would follow redirects and keep cookies of other sessions.
        self._transport = httpx.AsyncHTTPTransport(
            limits=httpx.Limits(max_connections=None, keepalive_expiry=30), trust_env=False
        )
        self._leaving: deque[tuple[str, ApplicationCall]] = deque(maxlen=CABLE_DISCONNECT_CALLS)
        """The disconnect calls that wait: they are made one after the other."""
        self._telling: asyncio.Task[None] | None = None

    async def call(self, sid: str, call: ApplicationCall) -> Answer:
        """Call the application for a session; the answer has the status ERROR if that fails."""
        try:
            async with asyncio.timeout(CABLE_CALL_WAIT_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            logger.warning("the application was not called: too many calls wait")
            return FAILED
        metrics.count("rpc_call_total")
        try:
            answer = parse_answer(await self._post_again(sid, call))
        except (httpx.HTTPError, BadAnswer, TimeoutError) as error:
            reason = str(error) or "it did not answer in time"
            metrics.count("rpc_error_total")
            logger.warning("calling the application failed (%s): %s", call.method, reason)
            return FAILED
        finally:
            self._slots.release()
        if answer.status is Status.ERROR:
            metrics.count("rpc_error_total")
            logger.warning("the application failed (%s): %s", call.method, answer.error[:500])
        return answer

    def call_later(self, sid: str, call: ApplicationCall) -> None:
        """Tell the application that a client has gone, without waiting for that."""
        if len(self._leaving) == CABLE_DISCONNECT_CALLS:
            logger.warning("the application is not told of a client that has gone: too many have")
        self._leaving.append((sid, call))
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell())

    async def close(self) -> None:
        telling = self._telling
        if telling is not None:
            await asyncio.wait([telling], timeout=CABLE_CLOSE_SECONDS)
            telling.cancel()
        await self._transport.aclose()

    async def _tell(self) -> None:
        while self._leaving:
            await self.call(*self._leaving.popleft())
        self._telling = None

    async def _post_again(self, sid: str, call: ApplicationCall) -> bytes:
        pause, waited = PAUSE, 0.0
        while True:
            try:
                async with asyncio.timeout(self._seconds):
                    return await self._post(sid, call)
            except httpx.TransportError:
                if waited > CABLE_CALL_RETRY_SECONDS:
                    raise
            await asyncio.sleep(pause)
            waited += pause
            pause *= 2

    async def _post(self, sid: str, call: ApplicationCall) -> bytes:
        headers = {**self._headers, b"x-anycable-meta-sid": sid.encode()}
        url = f"{self._url}/{call.method}"
        request = httpx.Request("POST", url, headers=headers, content=call.body)
        response = await self._transport.handle_async_request(request)
        try:
            if response.status_code != 200:
                raise BadAnswer(f"it answered with status {response.status_code}")
            body = bytearray()
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > CABLE_CALL_ANSWER_BYTES:
                    raise BadAnswer(f"its answer has more than {CABLE_CALL_ANSWER_BYTES} bytes")
            return bytes(body)
        finally:
            await response.aclose()
