"""The shell around every protocol's handlers: host checks, errors, request ids and CORS."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tailrace.auth.origins import LocalHosts, Origins
from tailrace.errors import NotAllowed, TailraceError
from tailrace.web.messages import Answer, Request, Response, cors
from tailrace.web.statuses import error_response, internal_error

RequestHandler = Callable[[Request], Awaitable[Answer]]
"""Answers a request, or raises the error to answer with."""

ErrorRenderer = Callable[[Exception, str], Response]
"""Renders the answer to an error, with the id of the request."""

logger = logging.getLogger("tailrace")


def render_error(error: Exception, request_id: str) -> Response:
    if isinstance(error, TailraceError):
        return error_response(error, request_id)
    return internal_error(request_id)


class Endpoint:
    """A protocol's handler that answers every request and never raises an Exception."""

    __slots__ = ("_expected", "_handle", "_hosts", "_origins", "_render")

    def __init__(
        self,
        handle: RequestHandler,
        origins: Origins,
        hosts: LocalHosts | None = None,
        *,
        expected: tuple[type[Exception], ...] = (TailraceError,),
        render: ErrorRenderer = render_error,
    ) -> None:
        """`hosts`: the only hosts whose requests are answered; None: any.
        `expected`: errors that are answers; all others are logged with their traceback.
        `render`: renders the body of an error as the protocol's clients expect it."""
        self._handle: Final = handle
        self._origins: Final = origins
        self._hosts: Final = hosts
        self._expected: Final = expected
        self._render: Final = render

    async def respond(self, request: Request) -> Answer:
        answer: Answer
        readable = True
        """Whether a browser may show the answer to the page that made the request."""
        if self._hosts is not None:
            try:
                self._hosts.check_host(request.headers)
                readable = self._hosts.allows_page(request.headers)
                # A browser sends nothing after a preflight whose answer does not allow its origin.
                if not readable and request.method != "OPTIONS":
                    self._hosts.check_page(request.headers)
            except NotAllowed as error:
                return error_response(error, request.id)
        try:
            answer = await self._handle(request)
            answer.headers.append((b"x-request-id", request.id.encode()))
        except self._expected as error:
            answer = self._render(error, request.id)
        except Exception as error:
            logger.exception("%s %s failed (%s)", request.method, request.raw_path, request.id)
            answer = self._render(error, request.id)
        if readable:
            answer.headers.extend(cors(self._origins, request.headers.get(b"origin")))
        return answer
