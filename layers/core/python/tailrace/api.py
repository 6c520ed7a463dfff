"""The FastAPI application: health, the list of streams, the OpenAPI document and its pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeVar
from urllib.parse import parse_qs

import orjson
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, BeforeValidator, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match

from tailrace import __version__, console, docs, errors
from tailrace.auth.keys import Keys, is_key
from tailrace.auth.origins import LocalHosts, is_loopback
from tailrace.errors import TailraceError
from tailrace.inspection import (
    Access,
    CableConnections,
    CablePresence,
    ListedStream,
    StreamDetails,
    describe_access,
    describe_connections,
    describe_details,
    describe_presence,
    describe_stream,
)
from tailrace.limits import DETAIL_ROWS, LIST_PAGE_STREAMS
from tailrace.log.paths import canonical, encode
from tailrace.protocols.action_cable.core.channels import path_of
from tailrace.protocols.action_cable.core.publisher import Audience
from tailrace.settings import Settings
from tailrace.streams import Streams
from tailrace.web import messages
from tailrace.web.authorize import RequestAuthorizer
from tailrace.web.health import StoreHealth
from tailrace.web.messages import combine
from tailrace.web.statuses import error_response, internal_error
from tailrace.web.watchdog import Watchdog

RouteFunction = TypeVar("RouteFunction", bound=Callable[..., Any])

_HOST = re.compile(r"[A-Za-z0-9.-]+(?::[0-9]+)?|\[[0-9A-Fa-f:.]+\](?::[0-9]+)?")


class Health(BaseModel):
    status: Literal["ok"]


class DetailedHealth(Health):
    version: Annotated[str, Field(description="The version of Tailrace.")]
    longest_block_ms: Annotated[
        int | None,
        Field(
            description="How long one thing held up all requests, at most, in the last minute: CPU"
            " time in milliseconds. Null on AWS, where a process has one request at a time."
        ),
    ]
    damaged_objects: Annotated[
        int,
        Field(
            description="How many stored files or objects were found damaged since the start. The"
            " log names each."
        ),
    ]


class StreamPage(BaseModel):
    streams: Annotated[list[ListedStream], Field(description="In the order of their paths.")]
    next: Annotated[
        str | None, Field(description="Pass it as `after` for the next page; null on the last.")
    ]


class FreshJson(JSONResponse):
    """JSON that caches must not store."""

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        super().init_headers(headers)
        self.raw_headers.append((b"cache-control", b"no-store"))


def build_api(
    streams: Streams,
    settings: Settings,
    authorizer: RequestAuthorizer,
    watchdog: Watchdog | None = None,
    audience: Callable[[], Audience] | None = None,
) -> FastAPI:
    """`audience`: gives the subscribers of cables; None: there are none."""
    api = FastAPI(
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        default_response_class=FreshJson,
        exception_handlers={
            TailraceError: _handle_error,
            RequestValidationError: _handle_error,
            HTTPException: _handle_error,
            Exception: _handle_crash,
        },
    )

    @_route(api, "/v1/streams", "listStreams", "List streams", errors=_LISTING_ERRORS)
    async def list_streams(
        request: Request,
        prefix: Annotated[str, Query(description="Only paths that begin with this.")] = "",
        after: Annotated[str, Query(description="Only paths that sort after this one.")] = "",
        limit: Annotated[
            int,
            Query(ge=1, le=LIST_PAGE_STREAMS, description="Most streams to list."),
            BeforeValidator(_check_digits),
        ] = 100,
    ) -> StreamPage:
        """Streams in the order of their paths. One that expired may be listed for a while."""
        await authorizer.listing(prefix, request.scope["headers"], _query(request))
        # One more than the page shows whether there is a next page.
        items = await streams.list(prefix, after, limit + 1)
        page = [describe_stream(stream, state) for stream, state in items[:limit]]
        return StreamPage(streams=page, next=page[-1].path if len(items) > limit else None)

    store_health = StoreHealth(streams.store)

    @_route(api, "/health", "getHealth", "Health", errors=_HEALTH_ERRORS)
    async def health(
        verbose: Annotated[str | None, Query(description="With any value: more details.")] = None,
        process: Annotated[
            str | None, Query(description="With any value: of the process alone, not of its store.")
        ] = None,
    ) -> DetailedHealth | Health:
        """For load balancers and the like: 503 while the store does not do its part."""
        if process is None:
            await store_health.check()
        if verbose is None:
            # Clients of Aviso may compare the whole body.
            return Health(status="ok")
        block = None if watchdog is None else watchdog.longest_block()
        return DetailedHealth(
            status="ok",
            version=__version__,
            longest_block_ms=None if block is None else round(block * 1000),
            damaged_objects=streams.store.damaged,
        )

    keys = Keys.from_settings(settings).metrics

    @_route(
        api,
        "/metrics",
        "getMetrics",
        "Metrics",
        errors=_LISTING_ERRORS,
        content={"text/plain": {"schema": {"type": "string"}}},
        response_class=PlainTextResponse,
    )
    async def read_metrics(request: Request) -> Response:
        """Metrics in the text format of Prometheus. They need TAILRACE_METRICS_KEY as a bearer
        token, or a token that may list all streams, unless access is open."""
        header = request.headers.get("authorization", "")
        if not is_key(header.removeprefix("Bearer "), keys):
            query = parse_qs(request.url.query, keep_blank_values=True)
            await authorizer.listing("", request.scope["headers"], query)
        try:
            from tailrace.web import prometheus
        except ModuleNotFoundError:
            raise errors.NotFound("functions send their metrics to CloudWatch") from None
        return _document(prometheus.render(), prometheus.CONTENT_TYPE, cache=b"no-store")

    _add_inspection(api, streams, authorizer, audience)
    _add_documents(api, settings)
    return api


def _add_inspection(
    api: FastAPI,
    streams: Streams,
    authorizer: RequestAuthorizer,
    audience: Callable[[], Audience] | None,
) -> None:
    """Add what operators may see, for the scope `admin`, and what callers may do, for everyone."""

    async def require_admin(request: Request, prefix: str) -> None:
        await authorizer.administration(prefix, request.scope["headers"], _query(request))

    @_route(
        api,
        "/v1/details",
        "getDetails",
        "Details of a stream",
        example="?stream=chat/room-1",
        errors=_DETAIL_ERRORS,
    )
    async def details(
        request: Request,
        stream: Annotated[str, Query(description="The path, percent-encoded or not.")],
    ) -> StreamDetails:
        """Producers, forks, and where the data is. Requires the scope `admin` for all below the
        path. It is no access that would renew a TTL."""
        path = canonical(encode(stream))
        await require_admin(request, path)
        tail, stored, hot_bytes = await streams.details(path, DETAIL_ROWS)
        return describe_details(tail, stored, hot_bytes, await streams.earliest_offset(tail))

    @_route(
        api,
        "/v1/access",
        "getAccess",
        "What the caller may do",
        example="?stream=chat/room-1",
        errors=_ACCESS_ERRORS,
    )
    async def access(
        request: Request,
        stream: Annotated[
            str, Query(description="A path; if empty, that of the signed name, or all streams.")
        ] = "",
    ) -> Access:
        """Describes the permissions of the credentials that are sent. Everyone may ask;
        credentials that are not valid get the error that they get everywhere."""
        path = canonical(encode(stream)) if stream else ""
        caller, allowed = await authorizer.describe(path, request.scope["headers"], _query(request))
        return describe_access(path, caller, allowed)

    @_route(
        api,
        "/v1/cable/connections",
        "listCableConnections",
        "Connections of Action Cable",
        errors=_ACCESS_ERRORS,
    )
    async def cable_connections(request: Request) -> CableConnections:
        """Clients that are connected now: on a server its own, on AWS all. Requires the scope
        `admin` for all streams."""
        await require_admin(request, "")
        return describe_connections(
            [] if audience is None else await audience().connected(DETAIL_ROWS + 1)
        )

    @_route(
        api,
        "/v1/cable/presence",
        "getCablePresence",
        "Presence in a stream",
        example="?stream=chat/42",
        errors=_ACCESS_ERRORS,
    )
    async def cable_presence(
        request: Request,
        stream: Annotated[str, Query(description="The name of the stream on cables.")],
    ) -> CablePresence:
        """Lists the members of a stream that are present. Requires the scope `admin` for all below
        its path."""
        path = path_of(stream)
        await require_admin(request, path)
        if audience is None:
            return CablePresence(total=0, members=[])
        return describe_presence(await audience().members(stream, path))


def _query(request: Request) -> dict[str, list[str]]:
    return parse_qs(request.url.query, keep_blank_values=True)


def _add_documents(api: FastAPI, settings: Settings) -> None:
    document = cache(lambda: orjson.dumps(docs.describe(settings)))

    @_route(
        api,
        "/",
        "getLanding",
        "Landing page",
        content={"text/html": {"schema": {"type": "string"}}},
        headers=("Vary", "Content-Security-Policy"),
        response_class=PlainTextResponse,
    )
    async def landing(request: Request) -> Response:
        """The console for browsers, plain text for all other clients. A page with links takes the
        place of the console where that is turned off, and for other machines than its own on a
        server that is open to everyone."""
        html = "text/html" in request.headers.get("accept", "")
        if html and _shows_console(request, settings):
            return _console_file(request, console.INDEX)
        page = docs.page("landing.html" if html else "landing.txt")
        kind = b"text/html; charset=utf-8" if html else b"text/plain; charset=utf-8"
        return _document(_with_own_url(page, request, settings), kind, (b"vary", _VARY))

    @_route(api, "/console/{name}", "getConsoleFile", "", include_in_schema=False)
    async def console_file(request: Request, name: str) -> Response:
        if not settings.console:
            raise errors.NotFound("this server has no console")
        return _console_file(request, f"{console.ASSETS}/{name}")

    @_route(
        api,
        "/docs",
        "getDocs",
        "Documentation",
        headers=("Content-Security-Policy",),
        response_class=HTMLResponse,
    )
    async def documentation() -> Response:
        """A viewer of the OpenAPI documents. `/docs/aviso` shows the one of Aviso."""
        page = docs.page("docs.html", document="/openapi.json")
        return _document(page, b"text/html; charset=utf-8")

    @_route(api, "/docs/aviso", "getAvisoDocs", "", include_in_schema=False)
    async def aviso_documentation() -> Response:
        page = docs.page("docs.html", document="/api-docs/openapi.json")
        return _document(page, b"text/html; charset=utf-8")

    @_route(api, f"/docs/{docs.VIEWER}", "getViewer", "", include_in_schema=False)
    async def viewer() -> Response:
        # The page names a version, so browsers need not fetch these 0.75 MB again.
        kind = b"text/javascript; charset=utf-8"
        return _document(docs.read(f"viewer/{docs.VIEWER}"), kind, cache=b"public, max-age=86400")

    @_route(api, "/openapi.json", "getDocument", "OpenAPI document")
    async def openapi_document(request: Request) -> Response:
        """This OpenAPI 3.1 document. Aviso has its own at `/api-docs/openapi.json`."""
        return _document(_with_own_url(document(), request, settings), b"application/json")


def _route(
    api: FastAPI,
    path: str,
    name: str,
    summary: str,
    *,
    content: dict[str, Any] | None = None,
    headers: Sequence[str] = (),
    errors: Mapping[int | str, dict[str, Any]] = {},
    example: str = "",
    **more: Any,
) -> Callable[[RouteFunction], RouteFunction]:
    """Serve GET and HEAD. `headers` and `errors` are those that only this route has;
    `example` is a query."""

    def add(endpoint: RouteFunction) -> RouteFunction:
        own = {header: {"required": True, "schema": {"type": "string"}} for header in headers}
        success = {"content": content or {}, "headers": {**_HEADERS, **own}}
        methods = (
            (api.get, name, summary, "curl"),
            (api.head, f"{name}Head", f"{summary}, headers only", "curl -I"),
        )
        for register, operation, title, command in methods:
            url = f"{docs.EXAMPLE_URL}{path}{example}"
            source = f"{command} '{url}'" if example else f"{command} {url}"
            register(
                path,
                operation_id=operation,
                summary=title,
                response_description="OK.",
                responses={200: success, **_ERRORS, **errors},
                tags=["Server"],
                openapi_extra={
                    "x-code-samples": [{"lang": "Shell", "label": "Shell", "source": source}]
                },
                **more,
            )(endpoint)
        return endpoint

    return add


def _error(name: str, *codes: str) -> dict[str, Any]:
    description = ", ".join(f"`{code}`" for code in codes)
    return {"$ref": f"#/components/responses/{name}", "description": description}


_HEADERS: Final = {
    name: {"$ref": f"#/components/headers/{name}"}
    for name in (
        "X-Request-ID",
        "X-Tailrace-Version",
        "X-Content-Type-Options",
        "Cross-Origin-Resource-Policy",
        "Cache-Control",
        "Access-Control-Allow-Origin",
        "Access-Control-Expose-Headers",
    )
}
_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: _error("BadRequest", "BAD_REQUEST"),
    403: _error("Forbidden", "NOT_ALLOWED"),
    408: _error("RequestTimeout", "REQUEST_TOO_SLOW"),
    431: _error("HeaderFieldsTooLarge", "HEADERS_TOO_LARGE"),
    500: _error("InternalServerError", "INTERNAL"),
}
"""In the OpenAPI document; `tailrace/web/openapi.yaml` describes them."""

_HEALTH_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    503: _error("ServiceUnavailable", "STORE_UNAVAILABLE"),
}

_LISTING_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: _error("BadRequest", "BAD_REQUEST", "BAD_PARAMETER"),
    401: _error("Unauthorized", "CREDENTIALS_MISSING", "BAD_CREDENTIALS", "TOKEN_EXPIRED"),
    429: _error("TooManyRequests", "STREAM_TOO_HOT"),
    503: _error("ServiceUnavailable", "STORE_UNAVAILABLE", "KEYS_UNAVAILABLE"),
}


_ACCESS_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: _error("BadRequest", "BAD_REQUEST", "BAD_PARAMETER", "BAD_PATH"),
    401: _error("Unauthorized", "CREDENTIALS_MISSING", "BAD_CREDENTIALS", "TOKEN_EXPIRED"),
    414: _error("UriTooLong", "PATH_TOO_LONG"),
    429: _error("TooManyRequests", "STREAM_TOO_HOT"),
    503: _error("ServiceUnavailable", "STORE_UNAVAILABLE", "KEYS_UNAVAILABLE"),
}

_DETAIL_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    **_ACCESS_ERRORS,
    404: _error("NotFound", "STREAM_NOT_FOUND"),
    410: _error("Gone", "STREAM_GONE"),
}


def _check_digits(value: object) -> object:
    """Refuse signs, spaces and underscores, which Python accepts in a number."""
    if isinstance(value, str) and not (value.isascii() and value.isdigit()):
        raise ValueError("must be a whole number in digits")
    return value


# Answers

_VARY: Final = b"accept, accept-encoding"


def _shows_console(request: Request, settings: Settings) -> bool:
    """Whether a request for a page gets the console: without secrets on loopback only."""
    if not settings.console or settings.access != "open":
        # A server that is open because it listens on loopback answers this machine only.
        return settings.console
    peer = request.client.host if request.client else ""
    return is_loopback(peer) and LocalHosts("", "").accepts_host(combine(request.scope["headers"]))


def _console_file(request: Request, name: str) -> Response:
    file = console.read(name)
    if file is None:
        raise errors.NotFound("the console has no such file; load the page again")
    headers = [
        (b"content-type", file.kind.encode()),
        (b"cache-control", file.cache_control.encode()),
        (b"etag", file.etag.encode()),
        (b"vary", _VARY),
        (b"content-security-policy", console.POLICY),
        (b"referrer-policy", b"no-referrer"),
    ]
    if file.etag in request.headers.get("if-none-match", ""):
        return _to_starlette(messages.Response(304, headers))
    body, encoding = file.encoded(request.headers.get("accept-encoding", ""))
    if encoding:
        headers.append((b"content-encoding", encoding.encode()))
    return _to_starlette(messages.Response(200, headers, body))


def _document(
    body: bytes, kind: bytes, *headers: tuple[bytes, bytes], cache: bytes = b"no-cache"
) -> Response:
    answer = messages.Response(
        200, [(b"content-type", kind), (b"cache-control", cache), *headers], body
    )
    if kind.startswith(b"text/"):
        answer.headers.append((b"content-security-policy", docs.POLICY))
    return _to_starlette(answer)


def _with_own_url(text: bytes, request: Request, settings: Settings) -> bytes:
    """Put the server's own URL into examples, if the settings or the request have it."""
    host = request.headers.get("host", "")
    url = settings.public_url.rstrip("/")
    if not url and _HOST.fullmatch(host):
        url = f"{request.scope['scheme']}://{host}"
    return text.replace(docs.EXAMPLE_URL.encode(), url.encode()) if url else text


def _to_starlette(answer: messages.Response) -> Response:
    response = Response(answer.body, answer.status)
    response.raw_headers += answer.headers
    return response


# Errors


async def _handle_error(request: Request, exception: Exception) -> Response:
    match exception:
        case TailraceError():
            error = exception
        case RequestValidationError():
            error = errors.BadParameter("; ".join(map(_describe_problem, exception.errors())))
        case HTTPException(status_code=404):
            path = request.url.path[:80]
            error = errors.NotFound(f"nothing is at '{path}'; /docs lists what is")
        case HTTPException(status_code=405):
            error = errors.MethodNotAllowed(request.method, _allowed_methods(request))
        case _:
            return _to_starlette(internal_error(request.scope["tailrace.id"]))
    return _to_starlette(error_response(error, request.scope["tailrace.id"]))


async def _handle_crash(request: Request, _: Exception) -> Response:
    """Answer with 500; Starlette raises the exception again, and the server logs it."""
    return _to_starlette(internal_error(request.scope["tailrace.id"]))


def _describe_problem(problem: dict[str, Any]) -> str:
    name = ".".join(map(str, problem["loc"][1:]))
    return f"{name}: {problem['msg']}"


def _allowed_methods(request: Request) -> str:
    methods: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is Match.PARTIAL:
            methods |= route.methods
    return ", ".join(sorted(methods))
