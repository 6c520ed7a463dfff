"""The FastAPI application: health, the listing, and the documents that describe every route."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qs

import orjson
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, BeforeValidator, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match

from tailrace import __version__, errors
from tailrace.errors import TailraceError
from tailrace.limits import LIST_PAGE
from tailrace.log.expiry import format_instant
from tailrace.log.state import State, Stream
from tailrace.protocols.durable_streams import docs_page, openapi
from tailrace.protocols.durable_streams.openapi.guide import EXAMPLE_URL
from tailrace.protocols.durable_streams.openapi.operations import SERVER
from tailrace.settings import Settings
from tailrace.streams import Streams
from tailrace.web import messages
from tailrace.web.authorize import RequestAuthorizer
from tailrace.web.statuses import error_response, internal_error
from tailrace.web.watchdog import Watchdog

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_HOST = re.compile(r"[A-Za-z0-9.-]+(?::[0-9]+)?|\[[0-9A-Fa-f:.]+\](?::[0-9]+)?")


class Health(BaseModel):
    status: Literal["ok"]
    version: Annotated[str, Field(description="The version of Tailrace.")]
    longest_block_ms: Annotated[
        int | None,
        Field(
            description="How long one thing held up all requests, at most, in the last minute: CPU"
            " time in milliseconds. Null on AWS, where a process has one request at a time."
        ),
    ]


class ListedStream(BaseModel):
    path: Annotated[str, Field(description="Percent-encoded, as it goes into a URL.")]
    content_type: Annotated[str, Field(description="As it was created.")]
    next_offset: Annotated[str, Field(description="Where the stream ends now.")]
    closed: Annotated[bool, Field(description="Whether it takes no more appends.")]
    created_at: Annotated[str, Field(description="When it was created, in RFC 3339.")]
    ttl: Annotated[int | None, Field(description="Seconds without use after which it expires.")]
    expires_at: Annotated[str | None, Field(description="When it expires, if at a fixed time.")]


class StreamPage(BaseModel):
    streams: Annotated[list[ListedStream], Field(description="In the order of their paths.")]
    next: Annotated[
        str | None, Field(description="Pass it as `after` for the next page; null on the last.")
    ]


class FreshJson(JSONResponse):
    """JSON that no cache keeps."""

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        super().init_headers(headers)
        self.raw_headers.append((b"cache-control", b"no-store"))


def build_api(
    streams: Streams,
    settings: Settings,
    authorizer: RequestAuthorizer,
    watchdog: Watchdog | None = None,
) -> FastAPI:
    api = FastAPI(
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        default_response_class=FreshJson,
        exception_handlers={
            TailraceError: _failed,
            RequestValidationError: _failed,
            HTTPException: _failed,
            Exception: _crashed,
        },
    )

    @_route(api, "/v1/streams", "listStreams", "List streams", "One page of streams.")
    async def list_streams(
        request: Request,
        prefix: Annotated[str, Query(description="Only paths that begin with this.")] = "",
        after: Annotated[str, Query(description="Only paths that sort after this one.")] = "",
        limit: Annotated[
            int,
            BeforeValidator(_digits),
            Query(ge=1, le=LIST_PAGE, description="Most streams to list."),
        ] = 100,
    ) -> StreamPage:
        """Streams in the order of their paths. One that expired may be listed for a while."""
        given = parse_qs(request.url.query, keep_blank_values=True)
        await authorizer.listing(prefix, request.scope["headers"], given)
        found = await streams.list(prefix, after, limit + 1)
        page = [_listed(*listed) for listed in found[:limit]]
        return StreamPage(streams=page, next=page[-1].path if len(found) > limit else None)

    @_route(api, "/health", "getHealth", "Health", "It is well.")
    async def health() -> Health:
        """For load balancers and the like."""
        block = None if watchdog is None else watchdog.longest_block()
        return Health(
            status="ok",
            version=__version__,
            longest_block_ms=None if block is None else round(block * 1000),
        )

    _add_documents(api, settings)
    return api


def _add_documents(api: FastAPI, settings: Settings) -> None:
    document = cache(lambda: openapi.describe(api, settings))
    document_body = cache(lambda: orjson.dumps(document()))
    page = cache(lambda: docs_page.page(document()))
    api.openapi = document  # type: ignore[method-assign]

    @_route(
        api,
        "/",
        "getLanding",
        "Landing page",
        "Where to go from here.",
        content={"text/html": {"schema": {"type": "string"}}},
        headers=("Vary", "Content-Security-Policy"),
        response_class=PlainTextResponse,
    )
    async def landing(request: Request) -> Response:
        """A page for browsers, plain text for everybody else."""
        html = "text/html" in request.headers.get("accept", "")
        text = docs_page.landing_page() if html else docs_page.landing_text()
        kind = b"text/html; charset=utf-8" if html else b"text/plain; charset=utf-8"
        return _document(_with_own_url(text, request, settings), kind, (b"vary", b"accept"))

    @_route(
        api,
        "/docs",
        "getDocs",
        "Documentation",
        "This page.",
        headers=("Content-Security-Policy",),
        response_class=HTMLResponse,
    )
    async def docs(request: Request) -> Response:
        """Everything in `/openapi.json`, for people."""
        return _document(_with_own_url(page(), request, settings), b"text/html; charset=utf-8")

    @_route(api, "/openapi.json", "getDocument", "OpenAPI document", "An OpenAPI 3.1 document.")
    async def openapi_document() -> Response:
        """Everything that is here, for programs."""
        return _document(document_body(), b"application/json")


def _route(
    api: FastAPI,
    path: str,
    name: str,
    summary: str,
    answer: str,
    *,
    content: dict[str, Any] | None = None,
    headers: Sequence[str] = (),
    **more: Any,
) -> Callable[[Endpoint], Endpoint]:
    """Serves GET and HEAD; `headers` are those that only this route's answers have."""

    def add(endpoint: Endpoint) -> Endpoint:
        success = {"content": content or {}, "headers": {header: {} for header in headers}}
        for register, operation in ((api.get, name), (api.head, f"{name}Head")):
            register(
                path,
                operation_id=operation,
                summary=summary,
                response_description=answer,
                responses={200: success},
                tags=[SERVER],
                **more,
            )(endpoint)
        return endpoint

    return add


def _digits(given: object) -> object:
    """Take digits alone for a number: Python also takes signs, spaces and underscores."""
    if isinstance(given, str) and not (given.isascii() and given.isdigit()):
        raise ValueError("must be a whole number in digits")
    return given


def _listed(stream: Stream, state: State) -> ListedStream:
    config = stream.config
    return ListedStream(
        path=stream.path,
        content_type=config.content_type,
        next_offset=state.next_offset,
        closed=state.closed,
        created_at=format_instant(config.created),
        ttl=config.ttl,
        expires_at=None if config.expires_at is None else format_instant(config.expires_at),
    )


# Answers


def _document(body: bytes, kind: bytes, *headers: tuple[bytes, bytes]) -> Response:
    answer = messages.Response(
        200, [(b"content-type", kind), (b"cache-control", b"no-cache"), *headers], body
    )
    if kind.startswith(b"text/"):
        answer.headers.append((b"content-security-policy", docs_page.POLICY))
    return _rendered(answer)


def _with_own_url(text: str, request: Request, settings: Settings) -> bytes:
    """Examples that can be pasted, if the request says how the server is reached."""
    host = request.headers.get("host", "")
    if not settings.public_url and _HOST.fullmatch(host):
        text = text.replace(EXAMPLE_URL, f"{request.scope['scheme']}://{host}")
    return text.encode()


def _rendered(answer: messages.Response) -> Response:
    response = Response(answer.body, answer.status)
    response.raw_headers += answer.headers
    return response


# Failures


async def _failed(request: Request, failure: Exception) -> Response:
    match failure:
        case TailraceError():
            error = failure
        case RequestValidationError():
            error = errors.BadParameter("; ".join(map(_complaint, failure.errors())))
        case HTTPException(status_code=404):
            path = request.url.path[:80]
            error = errors.NotFound(f"nothing is at '{path}'; /docs lists what is")
        case HTTPException(status_code=405):
            error = errors.MethodNotAllowed(request.method, _allowed(request))
        case _:
            return _rendered(internal_error(request.scope["tailrace.id"]))
    return _rendered(error_response(error, request.scope["tailrace.id"]))


async def _crashed(request: Request, _: Exception) -> Response:
    """Starlette sends this and raises the exception again, for the server to log."""
    return _rendered(internal_error(request.scope["tailrace.id"]))


def _complaint(problem: dict[str, Any]) -> str:
    name = ".".join(map(str, problem["loc"][1:]))
    return f"{name}: {problem['msg']}"


def _allowed(request: Request) -> str:
    methods: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is Match.PARTIAL:
            methods |= route.methods
    return ", ".join(sorted(methods))
