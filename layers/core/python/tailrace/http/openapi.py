"""The OpenAPI document: what FastAPI knows about its own routes, with the stream routes beside it.

Stream requests never reach FastAPI, so nothing can derive what they take; that is written here.
Errors are derived: each has one sample, and status, headers and body in the document are what
`error_response` makes of it. Tests fail when a header, a parameter or an error is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import orjson
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from tailrace import errors
from tailrace.errors import TailraceError
from tailrace.http import wire
from tailrace.http.paths import PREFIXES, RESERVED
from tailrace.http.routes import CHUNK_CACHING, LIVE_CACHING, TAIL_CACHING
from tailrace.http.statuses import INTERNAL_ERROR, error_response
from tailrace.limits import (
    CONTENT_TYPE_BYTES,
    FORK_DEPTH,
    HEADER_BYTES,
    HEADER_COUNT,
    JSON_DEPTH,
    MAX_INTEGER,
    PATH_BYTES,
    PRODUCER_ID_BYTES,
    STREAM_SEQ_BYTES,
)
from tailrace.log.content import DEFAULT_TYPE
from tailrace.log.offsets import START, token
from tailrace.settings import Settings

Json = dict[str, Any]
Kind = type[TailraceError]

MAIN, SHORT = PREFIXES
EXAMPLE_URL: Final = "http://localhost:4437"
"""What examples call when nobody said where the server is."""

STREAMS, SERVER = "Streams", "Server"
_OFFSET: Final = {"type": "string", "pattern": "^[0-9]{16}_[0-9]{16}$", "examples": [token(2, 37)]}
_COUNTER: Final = {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER}


def describe(api: FastAPI, settings: Settings) -> Json:
    """The document for an application that serves `api` and the stream routes."""
    base = settings.public_url.rstrip("/") or EXAMPLE_URL
    document = get_openapi(
        title="Tailrace",
        version=api.version,
        summary="A Durable Streams server: append-only logs that live at a URL.",
        description=_guide(base, settings),
        license_info={"name": "Apache 2.0", "identifier": "Apache-2.0"},
        servers=[{"url": settings.public_url.rstrip("/") or "/"}],
        tags=[
            {"name": STREAMS, "description": f"Every stream has a URL below `{MAIN}`."},
            {"name": SERVER, "description": "What is there, and whether it is well."},
        ],
        routes=api.routes,
    )
    components = _Components({type(known.sample): known for known in known_errors(settings)})
    document["paths"] = {
        **_stream_paths(components, base, settings),
        **{path: _completed(item, components, base) for path, item in document["paths"].items()},
    }
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas |= components.schemas()
    document["components"] |= {
        "parameters": PARAMETERS,
        "headers": components.headers,
        "responses": components.responses,
        "examples": components.examples(),
    }
    return document


# Errors


class Known(NamedTuple):
    """An error as the server answers it, and when it does."""

    sample: TailraceError
    when: str

    @property
    def answer(self) -> wire.Response:
        return error_response(self.sample)


def known_errors(settings: Settings) -> list[Known]:
    """Every error that HTTP can answer, in the order of their statuses."""
    path = "chat/room-1"
    internal = orjson.loads(INTERNAL_ERROR.body)["error"]["message"]
    known = [
        Known(errors.BadRequest("Invalid HTTP request received."), "The bytes are not HTTP."),
        Known(
            errors.BadPath("the path has a control character"),
            "The stream's path is empty, not UTF-8, or has a broken percent-encoding, a control"
            " character, or a `.` or `..` segment.",
        ),
        Known(
            errors.BadHeader("send Stream-TTL or Stream-Expires-At, not both"),
            "A request header has a value that it cannot have, is missing, or contradicts another"
            " one. The message names it.",
        ),
        Known(
            errors.BadParameter("live must be long-poll or sse, not 'poll'"),
            "A query parameter has a value that it cannot have.",
        ),
        Known(
            errors.BadOffset("an offset is a value this server gave as Stream-Next-Offset"),
            "The offset is malformed or given twice, or a live read has none.",
        ),
        Known(
            errors.EmptyBody("the body is empty; send data, or Stream-Closed: true to close"),
            "An append without a body that does not close the stream either.",
        ),
        Known(
            errors.InvalidJson("the body is not valid JSON: Expecting value: line 1 column 2"),
            f"The stream holds JSON and the body is none, or is nested deeper than {JSON_DEPTH}"
            " levels.",
        ),
        Known(
            errors.EmptyBatch("an empty JSON array appends nothing; send at least one message"),
            "`[]` was appended to a stream of JSON.",
        ),
        Known(
            errors.ForkOutOfRange(f"the source ends at {START}, before the fork's offset"),
            "A fork's offset is beyond the end of its source, or its sub-offset beyond the end of"
            " the append that it divides.",
        ),
        Known(
            errors.NewEpochNotAtZero("a new epoch starts at Producer-Seq 0; received 7"),
            "The first request of a new `Producer-Epoch` must have `Producer-Seq: 0`.",
        ),
        Known(
            errors.ProducerFenced(4),
            "A newer instance of the producer, with a higher epoch, took over. Stop, or claim the"
            " stream again with a higher epoch than the one in `Producer-Epoch`.",
        ),
        Known(
            errors.NotFound("nothing is at '/v1/stream'; /docs lists what is"),
            f"No such route. Paths whose first segment is `{RESERVED}` are the protocol's own.",
        ),
        Known(errors.StreamNotFound(path), "No stream is at this path: never created, or deleted."),
        Known(
            errors.MethodNotAllowed("PATCH", wire.METHODS),
            "The path takes other methods; `Allow` lists them.",
        ),
        Known(
            errors.StreamConflict("the stream exists already, with another TTL or expiry"),
            "A stream with another configuration is at the path, or the path or a fork's source is"
            " deleted and kept only for its forks, or forks of forks are nested deeper than"
            f" {FORK_DEPTH}.",
        ),
        Known(
            errors.ContentTypeConflict("application/json", "text/plain"),
            "The request's `Content-Type` is not the stream's. Parameters such as `charset` do not"
            " count.",
        ),
        Known(
            errors.StreamClosed(token(3, 51)),
            "The stream is closed for good. `Stream-Next-Offset` is where it ends.",
        ),
        Known(
            errors.SequenceConflict("0009", "0008"),
            "`Stream-Seq` does not sort after the last one that was accepted.",
        ),
        Known(
            errors.ProducerGap(5, 7),
            "A request of this producer is missing: send `Producer-Expected-Seq` first.",
        ),
        Known(
            errors.StreamGone(path),
            "The stream was deleted or has expired, and its data is kept only for its forks.",
        ),
        Known(
            errors.OffsetTrimmed(token(128, 90210)),
            "Data at this offset is no longer retained.",
        ),
        Known(
            errors.BodyTooLarge(f"a body has at most {settings.max_body_bytes} bytes"),
            f"The body has more than {settings.max_body_bytes:,} bytes. Send it in parts.",
        ),
        Known(
            errors.PathTooLong(f"a stream's path has at most {PATH_BYTES} bytes"),
            f"The stream's path has more than {PATH_BYTES:,} bytes, percent-encoded.",
        ),
        Known(
            errors.HeadersTooLarge(
                f"a request has at most {HEADER_COUNT} header fields and {HEADER_BYTES} bytes of"
                " them"
            ),
            f"The request has more than {HEADER_COUNT} header fields, or more than"
            f" {HEADER_BYTES:,} bytes of them.",
        ),
        Known(TailraceError(internal), "A fault of the server; its log has the details."),
        Known(
            errors.StoreUnavailable("the store could not commit: disk I/O error"),
            "The store could not be written. Nothing has changed; retry after `Retry-After`"
            " seconds.",
        ),
    ]
    return sorted(known, key=lambda error: error.answer.status)


ANY_ROUTE: Final[tuple[Kind, ...]] = (errors.BadRequest, errors.HeadersTooLarge, TailraceError)
ANY_STREAM: Final[tuple[Kind, ...]] = (
    *ANY_ROUTE,
    errors.BadPath,
    errors.NotFound,
    errors.StreamNotFound,
    errors.BodyTooLarge,
    errors.PathTooLong,
    errors.StoreUnavailable,
)
OWN_ERRORS: Final[dict[str, tuple[Kind, ...]]] = {
    "createStream": (
        *ANY_STREAM,
        errors.BadHeader,
        errors.BadOffset,
        errors.InvalidJson,
        errors.ForkOutOfRange,
        errors.StreamConflict,
        errors.ContentTypeConflict,
        errors.OffsetTrimmed,
    ),
    "appendToStream": (
        *ANY_STREAM,
        errors.BadHeader,
        errors.EmptyBody,
        errors.InvalidJson,
        errors.EmptyBatch,
        errors.NewEpochNotAtZero,
        errors.ProducerFenced,
        errors.ContentTypeConflict,
        errors.StreamClosed,
        errors.SequenceConflict,
        errors.ProducerGap,
        errors.StreamGone,
    ),
    "readStream": (
        *ANY_STREAM,
        errors.BadOffset,
        errors.BadParameter,
        errors.StreamGone,
        errors.OffsetTrimmed,
    ),
    "inspectStream": (*ANY_STREAM, errors.StreamGone),
    "deleteStream": (*ANY_STREAM, errors.StreamGone),
    "preflightStream": (*ANY_ROUTE, errors.BodyTooLarge),
    "listStreams": (*ANY_ROUTE, errors.BadParameter, errors.StoreUnavailable),
}
"""The errors of each operation; those not named have only the errors of any route."""


# Headers and parameters


HEADERS: Final[dict[str, Json]] = {
    "Stream-Next-Offset": {
        "description": "The offset after what was written or read: pass it as `offset` to go on.",
        "schema": _OFFSET,
    },
    "Stream-Cursor": {
        "description": "Pass it as `cursor` with the next long-poll.",
        "schema": {"type": "string", "pattern": "^[0-9]+$", "examples": ["3312000"]},
    },
    "Stream-Up-To-Date": {
        "description": "Present when the answer reaches the end of what the stream holds now.",
        "schema": {"const": "true"},
    },
    "Stream-Closed": {
        "description": "Present when the stream is closed; on a read, when it was read to its end.",
        "schema": {"const": "true"},
    },
    "Stream-SSE-Data-Encoding": {
        "description": "Present when `data` events carry base64: the stream's type is neither"
        " `text/*` nor `application/json`.",
        "schema": {"const": "base64"},
    },
    "Stream-TTL": {
        "description": "Seconds without reads and writes after which the stream expires.",
        "schema": _COUNTER,
    },
    "Stream-Expires-At": {
        "description": "When the stream expires.",
        "schema": {"type": "string", "format": "date-time"},
    },
    "Producer-Epoch": {"description": "The producer's epoch.", "schema": _COUNTER},
    "Producer-Seq": {
        "description": "The highest `Producer-Seq` accepted from this producer.",
        "schema": _COUNTER,
    },
    "Producer-Expected-Seq": {
        "description": "The `Producer-Seq` that has to come next.",
        "schema": _COUNTER,
    },
    "Producer-Received-Seq": {
        "description": "The `Producer-Seq` of this request.",
        "schema": _COUNTER,
    },
    "ETag": {
        "description": "Names exactly these bytes; send it as `If-None-Match`.",
        "schema": {"type": "string", "examples": ['"1f0c:0:2"']},
    },
    "Location": {
        "description": "The stream's absolute URL.",
        "schema": {"type": "string", "format": "uri"},
    },
    "Content-Type": {
        "description": "The stream's content type, as it was created.",
        "schema": {"type": "string"},
    },
    "Content-Encoding": {
        "description": "Present when the body is compressed.",
        "schema": {"enum": ["zstd", "br", "gzip", "deflate"]},
    },
    "Vary": {
        "description": "What else of a request a cache has to look at.",
        "schema": {"enum": ["accept-encoding", "accept"]},
    },
    "Cache-Control": {
        "description": "How long a cache may keep the answer.",
        "schema": {"type": "string"},
    },
    "Retry-After": {
        "description": "Seconds to wait before a retry.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "Allow": {"description": "The methods of this path.", "schema": {"type": "string"}},
    "X-Accel-Buffering": {
        "description": "Tells proxies to pass events on at once.",
        "schema": {"const": "no"},
    },
    "X-Content-Type-Options": {
        "description": "Browsers do not guess types.",
        "schema": {"const": "nosniff"},
    },
    "Cross-Origin-Resource-Policy": {
        "description": "Any site may load this.",
        "schema": {"const": "cross-origin"},
    },
    "Access-Control-Allow-Origin": {
        "description": "Any site may read this.",
        "schema": {"const": "*"},
    },
    "Access-Control-Expose-Headers": {
        "description": "What scripts of other sites may see: "
        + ", ".join(f"`{name}`" for name in wire.RESPONSE_HEADERS),
        "schema": {"type": "string"},
    },
    "Access-Control-Allow-Methods": {
        "description": "The methods that scripts of other sites may use.",
        "schema": {"const": wire.METHODS},
    },
    "Access-Control-Allow-Headers": {
        "description": "The headers that scripts of other sites may send: "
        + ", ".join(f"`{name}`" for name in wire.REQUEST_HEADERS),
        "schema": {"type": "string"},
    },
    "Access-Control-Max-Age": {
        "description": "Seconds for which a browser may remember this.",
        "schema": {"type": "integer"},
    },
    "Content-Security-Policy": {
        "description": "The page loads nothing from anywhere.",
        "schema": {"type": "string"},
    },
}
COMMON: Final = tuple(name.decode().title() for name, _ in wire.COMMON_HEADERS)
"""On every answer."""

_BY_LOWER_NAME: Final = {name.lower(): name for name in HEADERS}


def _parameter(name: str, place: str, description: str, schema: Json, **more: Any) -> Json:
    return {"name": name, "in": place, "description": description, "schema": schema, **more}


PARAMETERS: Final[dict[str, Json]] = {
    "path": _parameter(
        "path",
        "path",
        "The stream's name: one or more segments, as in `chat/room-1`. It is the whole rest of the"
        " URL's path, so slashes are written as they are (OpenAPI has no way to say so). A slash"
        " inside a segment is written `%2F`. Spellings that differ only in percent-encoding name"
        f" the same stream. At most {PATH_BYTES:,} bytes, percent-encoded; no `.` or `..` segments,"
        f" no control characters; the first segment is not `{RESERVED}`.",
        {"type": "string", "minLength": 1, "maxLength": PATH_BYTES},
        required=True,
        example="chat/room-1",
    ),
    "offset": _parameter(
        "offset",
        "query",
        "Where to begin: a `Stream-Next-Offset` of this stream, `-1` for the beginning, or `now`"
        " for the end. Without it a read begins at the beginning; live reads require it.",
        {"type": "string", "pattern": "^(-1|now|[0-9]{16}_[0-9]{16})$"},
        example="-1",
    ),
    "live": _parameter(
        "live",
        "query",
        "`long-poll`: wait until there is data after the offset. `sse`: follow the stream as"
        " server-sent events. Without it the answer is what is there now.",
        {"type": "string", "enum": ["long-poll", "sse"]},
    ),
    "cursor": _parameter(
        "cursor",
        "query",
        "The `Stream-Cursor` (`streamCursor` of SSE) of the answer before: lets caches serve many"
        " live readers with one request. What is not a cursor is ignored.",
        {"type": "string"},
        example="3312000",
    ),
    "Stream-TTL": _parameter(
        "Stream-TTL",
        "header",
        "Let the stream expire after this many seconds without a read or write. Not together with"
        " `Stream-Expires-At`.",
        _COUNTER,
        example=3600,
    ),
    "Stream-Expires-At": _parameter(
        "Stream-Expires-At",
        "header",
        "Let the stream expire at this RFC 3339 time, used or not.",
        {"type": "string", "format": "date-time"},
        example="2030-01-31T12:00:00Z",
    ),
    "Stream-Closed": _parameter(
        "Stream-Closed",
        "header",
        "`true` closes the stream with this request: its data, if any, is the last. Any other"
        " value is ignored.",
        {"type": "string", "enum": ["true", "false"]},
    ),
    "Stream-Seq": _parameter(
        "Stream-Seq",
        "header",
        "A text that sorts, byte by byte, after that of every append before; else the append is"
        f" refused. For writers that coordinate with each other. At most {STREAM_SEQ_BYTES} bytes.",
        {"type": "string", "maxLength": STREAM_SEQ_BYTES},
        example="0042",
    ),
    "Producer-Id": _parameter(
        "Producer-Id",
        "header",
        "The name of a producer whose retries are recognised. The three `Producer-` headers come"
        f" together or not at all. At most {PRODUCER_ID_BYTES} bytes.",
        {"type": "string", "minLength": 1, "maxLength": PRODUCER_ID_BYTES},
        example="worker-7",
    ),
    "Producer-Epoch": _parameter(
        "Producer-Epoch",
        "header",
        "Which instance of the producer this is: one more after each restart.",
        _COUNTER,
        example=0,
    ),
    "Producer-Seq": _parameter(
        "Producer-Seq",
        "header",
        "The number of this request in its epoch: 0, 1, 2 and so on.",
        _COUNTER,
        example=0,
    ),
    "Stream-Forked-From": _parameter(
        "Stream-Forked-From",
        "header",
        f"Make the stream a fork of the one at this URL path, such as `{MAIN}chat/room-1`.",
        {"type": "string", "pattern": f"^({MAIN}|{SHORT})."},
        example=f"{MAIN}chat/room-1",
    ),
    "Stream-Fork-Offset": _parameter(
        "Stream-Fork-Offset",
        "header",
        "The fork shares what its source holds before this offset; without it, all.",
        {key: value for key, value in _OFFSET.items() if key != "examples"},
        example=START,
    ),
    "Stream-Fork-Sub-Offset": _parameter(
        "Stream-Fork-Sub-Offset",
        "header",
        "Take this many bytes (messages of a JSON stream) of the append at the fork's offset, too.",
        _COUNTER,
        example=1,
    ),
    "If-None-Match": _parameter(
        "If-None-Match",
        "header",
        "One or more `ETag`s that the client holds, or `*`: if one still is right, the answer is"
        " 304 without a body.",
        {"type": "string"},
        example='"1f0c:0:2"',
    ),
    "Accept-Encoding": _parameter(
        "Accept-Encoding",
        "header",
        "The compressions that the client reads: `zstd`, `br`, `gzip` or `deflate`.",
        {"type": "string"},
        example="zstd, br;q=0.9, gzip;q=0.5",
    ),
}


class _Components:
    """What operations refer to, collected as they do."""

    def __init__(self, known: Mapping[Kind, Known]) -> None:
        self.known = known
        self.headers: dict[str, Json] = {}
        self.responses: dict[str, Json] = {}

    def header(self, name: str, *, always: bool = False, note: str = "") -> Json:
        key = f"{name}.always" if always else name
        self.headers[key] = {**HEADERS[name], "required": True} if always else HEADERS[name]
        reference = {"$ref": f"#/components/headers/{key}"}
        return {**reference, "description": note} if note else reference

    def response(
        self,
        operation: str,
        status: int,
        description: str,
        always: Iterable[str] = (),
        sometimes: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Json:
        headers = {name: self.header(name, always=True) for name in (*COMMON, *always)}
        for name, note in (sometimes or {}).items():
            headers[name] = self.header(name, note=note)
        name = f"{operation}.{status}"
        self.responses[name] = {"description": description, "headers": headers, **more}
        return {"$ref": f"#/components/responses/{name}"}

    def errors(
        self, operation: str, kinds: Iterable[Kind], *, body: bool = True
    ) -> dict[str, Json]:
        """Answers with one of these errors, one for each status."""
        by_status: dict[int, list[Known]] = {}
        for kind in sorted(kinds, key=list(self.known).index):
            known = self.known[kind]
            by_status.setdefault(known.answer.status, []).append(known)
        return {
            str(status): self._error(operation, status, group, body)
            for status, group in by_status.items()
        }

    def _error(self, operation: str, status: int, group: list[Known], body: bool) -> Json:
        carriers: dict[str, list[str]] = {}
        for known in group:
            for raw, _ in known.answer.headers:
                name = _BY_LOWER_NAME[raw.decode()]
                carriers.setdefault(name, []).append(known.sample.code)
        del carriers["Content-Type"]
        always = [name for name, codes in carriers.items() if len(codes) == len(group)]
        sometimes = {
            name: f"With {_either(codes)}. {HEADERS[name]['description']}"
            for name, codes in carriers.items()
            if name not in always
        }
        codes = [known.sample.code for known in group]
        description = "\n".join(f"- `{known.sample.code}`: {known.when}" for known in group)
        if not body:
            return self.response(
                operation, status, f"{description}\n\nWithout the body.", always, sometimes
            )
        narrowed = {"properties": {"error": {"properties": {"code": {"enum": codes}}}}}
        content = {
            "schema": {"allOf": [{"$ref": "#/components/schemas/Error"}, narrowed]},
            "examples": {code: {"$ref": f"#/components/examples/{code}"} for code in codes},
        }
        return self.response(
            operation,
            status,
            description,
            always,
            sometimes,
            content={"application/json": content},
        )

    def schemas(self) -> dict[str, Json]:
        codes = [known.sample.code for known in self.known.values()]
        return {
            "Error": {
                "type": "object",
                "required": ["error"],
                "properties": {
                    "error": {
                        "type": "object",
                        "required": ["code", "message"],
                        "properties": {
                            "code": {
                                "type": "string",
                                "enum": codes,
                                "description": "For programs; never changes.",
                            },
                            "message": {"type": "string", "description": "For people."},
                        },
                    }
                },
            }
        }

    def examples(self) -> dict[str, Json]:
        return {
            known.sample.code: {
                "summary": known.when,
                "value": orjson.loads(known.answer.body),
                "x-status": known.answer.status,
                "x-headers": [
                    f"{_BY_LOWER_NAME[name.decode()]}: {value.decode()}"
                    for name, value in known.answer.headers
                    if name not in (b"content-type", b"cache-control")
                ],
            }
            for known in self.known.values()
        }


def _either(codes: list[str]) -> str:
    return " or ".join(f"`{code}`" for code in codes)


# Operations


def _completed(item: Json, components: _Components, base: str) -> Json:
    """FastAPI's description of one of its paths, with what it does not know of."""
    for method, operation in item.items():
        name = operation["operationId"]
        main = name.removesuffix("Head")
        body = method != "head"
        successes = {int(s): r for s, r in operation["responses"].items() if s != "422"}
        operation["responses"] = {}
        for status, response in successes.items():
            always = ("Cache-Control", *response.pop("headers", ()))
            if not body:
                response.pop("content", None)
            answer = components.response(name, status, always=always, **response)
            operation["responses"][str(status)] = answer
        kinds = OWN_ERRORS.get(main, ANY_ROUTE)
        operation["responses"] |= components.errors(name, kinds, body=body)
        if body:
            operation["x-codeSamples"] = _samples(
                {operation["summary"]: f"curl {base}{SAMPLES[main]}"}
            )
        else:
            operation["x-same-as"] = main
    return item


def _stream_paths(components: _Components, base: str, settings: Settings) -> dict[str, Json]:
    operations = {
        "put": _create(components),
        "post": _append(components),
        "get": _read(components, settings),
        "head": _inspect(components),
        "delete": _delete(components),
        "options": _preflight(components),
    }
    at_path = [{"$ref": "#/components/parameters/path"}]
    main: Json = {"parameters": at_path}
    short: Json = {"parameters": at_path}
    for method, operation in operations.items():
        name = operation["operationId"]
        operation["responses"] |= components.errors(name, OWN_ERRORS[name], body=method != "head")
        operation["tags"] = [STREAMS]
        short[method] = {
            **operation,
            "operationId": f"{name}Short",
            "description": f"The same as `{method.upper()} {MAIN}{{path}}`.",
            "x-same-as": name,
        }
        url = f"{base}{MAIN}chat/room-1"
        main[method] = {**operation, "x-codeSamples": _samples(_stream_samples(url)[method])}
    return {f"{MAIN}{{path}}": main, f"{SHORT}{{path}}": short}


def _parameters(*names: str) -> list[Json]:
    return [{"$ref": f"#/components/parameters/{name}"} for name in names]


def _body(description: str, *, required: bool) -> Json:
    return {
        "description": description,
        "required": required,
        "content": {
            "application/json": {
                "schema": {"description": "One message, or an array of messages."},
                "example": [{"text": "hello"}, {"text": "world"}],
            },
            "text/plain": {"schema": {"type": "string"}, "example": "hello\n"},
            DEFAULT_TYPE: {"schema": {"type": "string", "format": "binary"}},
            "*/*": {"schema": {"description": "Any other type: bytes, kept as they are."}},
        },
    }


def _read_on(operation: str) -> Json:
    """How an answer's offset leads to the next read."""
    return {
        operation: {
            "operationId": "readStream",
            "description": "Read what comes after.",
            "parameters": {
                "path": "$request.path.path",
                "offset": "$response.header.Stream-Next-Offset",
            },
        }
    }


def _create(components: _Components) -> Json:
    name = "createStream"
    always = ("Content-Type", "Stream-Next-Offset")
    closed = {"Stream-Closed": "Present when the stream is closed."}
    return {
        "operationId": name,
        "summary": "Create a stream",
        "description": "Creates the stream, or finds that it is there already as asked for, so a"
        " retry is safe. The content type is fixed from here on"
        f" (`{DEFAULT_TYPE}` when none is given). A body becomes the first data, and is ignored"
        " when the stream is there already.\n\nWith `Stream-Forked-From` the stream begins with"
        " another one's data, without a copy; type and expiry come from that one unless given.",
        "parameters": _parameters(
            "Stream-TTL",
            "Stream-Expires-At",
            "Stream-Closed",
            "Stream-Forked-From",
            "Stream-Fork-Offset",
            "Stream-Fork-Sub-Offset",
        ),
        "requestBody": _body(
            "The first data. `Content-Type` becomes the stream's, at most"
            f" {CONTENT_TYPE_BYTES} bytes.",
            required=False,
        ),
        "responses": {
            "200": components.response(
                name, 200, "The stream is there already, as asked for.", always, closed
            ),
            "201": components.response(
                name,
                201,
                "Created.",
                (*always, "Location"),
                closed,
                links={
                    "append": {
                        "operationId": "appendToStream",
                        "parameters": {"path": "$request.path.path"},
                    },
                    "delete": {
                        "operationId": "deleteStream",
                        "parameters": {"path": "$request.path.path"},
                    },
                    **_read_on("read"),
                },
            ),
        },
    }


def _append(components: _Components) -> Json:
    name = "appendToStream"
    return {
        "operationId": name,
        "summary": "Append to a stream, or close it",
        "description": "Appends the body as a whole or not at all, and answers when it is on disk."
        " In a stream of JSON an array is a batch: each element becomes a message.\n\n"
        "`Stream-Closed: true` closes the stream, after the body if there is one. Closing a closed"
        " stream again is fine.\n\nWith the three `Producer-` headers a repeated request is"
        " recognised and not appended twice.",
        "parameters": _parameters(
            "Stream-Closed", "Stream-Seq", "Producer-Id", "Producer-Epoch", "Producer-Seq"
        ),
        "requestBody": _body(
            "The data. `Content-Type` is the stream's; parameters such as `charset` may differ."
            " Required unless the request only closes the stream, which needs no `Content-Type`.",
            required=False,
        ),
        "responses": {
            "200": components.response(
                name,
                200,
                "Appended, for a producer.",
                ("Stream-Next-Offset", "Producer-Epoch", "Producer-Seq"),
                {"Stream-Closed": "Present when the stream is closed now."},
                links=_read_on("readOn"),
            ),
            "204": components.response(
                name,
                204,
                "Appended, closed, or, for a producer, accepted before.",
                ("Stream-Next-Offset",),
                {
                    "Stream-Closed": "Present when the stream is closed now.",
                    "Producer-Epoch": "With the `Producer-` headers only: the request's.",
                    "Producer-Seq": "With the `Producer-` headers only: the highest accepted.",
                },
                links=_read_on("readOn"),
            ),
        },
    }


def _read(components: _Components, settings: Settings) -> Json:
    name = "readStream"
    return {
        "operationId": name,
        "summary": "Read a stream",
        "description": "Answers with the data from `offset` on. A long stream comes in pieces of"
        f" about {settings.chunk_bytes:,} bytes: read again at `Stream-Next-Offset` until"
        " `Stream-Up-To-Date: true`. `Stream-Closed: true` says that nothing will ever follow."
        " Data of a JSON stream is always one array.\n\n"
        "**Long-poll** (`live=long-poll`): answers with data as soon as there is some, or with 204"
        f" after {settings.long_poll_timeout:g} seconds.\n\n"
        "**Server-sent events** (`live=sse`): `data` events carry data (a JSON stream's as an"
        " array; types other than `text/*` and `application/json` as base64), and each is followed"
        " by a `control` event with JSON: `streamNextOffset`, `streamCursor`, `upToDate` and"
        f" `streamClosed`. The answer ends after {settings.sse_lifetime:g} seconds; connect again"
        " at the last `streamNextOffset`, unless `streamClosed` was true.",
        "parameters": _parameters("offset", "live", "cursor", "If-None-Match", "Accept-Encoding"),
        "responses": {
            "200": components.response(
                name,
                200,
                "The data, or the events. Empty (`[]` for JSON) at the end of the stream.",
                ("Cache-Control",),
                {
                    "Stream-Next-Offset": "Where to read next. Not with `live=sse`.",
                    "Stream-Up-To-Date": "Present when this reaches the end of what is there now.",
                    "Stream-Closed": "Present when this reaches the end of a closed stream.",
                    "Stream-Cursor": "With `live=long-poll`: pass it as `cursor` the next time.",
                    "ETag": "Names these bytes. Not with `live=sse`, nor with `offset=now` alone.",
                    "Vary": "Present when the type is one that is compressed.",
                    "Content-Encoding": "Present when the body is compressed.",
                    "Stream-SSE-Data-Encoding": "With `live=sse`, when `data` events are base64.",
                    "X-Accel-Buffering": "With `live=sse`.",
                },
                content={
                    "application/json": {
                        "schema": {"type": "array", "items": {}},
                        "example": [{"text": "hello"}, {"text": "world"}],
                    },
                    "text/event-stream": {
                        "schema": {"type": "string"},
                        "example": "event: data\n"
                        'data:[{"text":"hello"}]\n\n'
                        "event: control\n"
                        f'data:{{"streamNextOffset":"{token(1, 1)}","streamCursor":"3312000",'
                        '"upToDate":true}\n\n',
                    },
                    "*/*": {"schema": {"description": "Bytes of the stream's own type."}},
                },
                links=_read_on("readOn"),
            ),
            "204": components.response(
                name,
                204,
                "A long-poll found nothing: ask again, unless the stream is closed.",
                ("Stream-Next-Offset", "Stream-Up-To-Date", "Stream-Cursor", "Cache-Control"),
                {"Stream-Closed": "Present when the stream is closed: nothing will follow."},
            ),
            "304": components.response(
                name,
                304,
                "What `If-None-Match` names is what the answer would have been.",
                ("Stream-Next-Offset", "Cache-Control", "ETag"),
                {
                    "Content-Type": "The stream's.",
                    "Stream-Up-To-Date": "As with 200.",
                    "Stream-Closed": "As with 200.",
                    "Stream-Cursor": "As with 200.",
                    "Vary": "As with 200.",
                },
            ),
        },
    }


def _inspect(components: _Components) -> Json:
    name = "inspectStream"
    return {
        "operationId": name,
        "summary": "Look at a stream",
        "description": "Where the stream ends, its type, whether it is closed and when it expires."
        " Does not renew its TTL.",
        "responses": {
            "200": components.response(
                name,
                200,
                "It is there.",
                ("Content-Type", "Stream-Next-Offset", "Cache-Control"),
                {
                    "Stream-Closed": "Present when the stream is closed.",
                    "Stream-TTL": "Present when the stream has a TTL: the TTL, not what is left.",
                    "Stream-Expires-At": "Present when the stream expires at a fixed time.",
                },
            )
        },
    }


def _delete(components: _Components) -> Json:
    name = "deleteStream"
    return {
        "operationId": name,
        "summary": "Delete a stream",
        "description": "Its path is free again at once, unless streams were forked from it: then"
        " its data is kept for them, and the path answers 410 until the last of them is gone.",
        "responses": {"204": components.response(name, 204, "Deleted.")},
    }


def _preflight(components: _Components) -> Json:
    name = "preflightStream"
    return {
        "operationId": name,
        "summary": "Ask what a browser may do",
        "description": "The CORS preflight. Scripts of every site may use every method, whether or"
        " not the stream exists.",
        "responses": {
            "204": components.response(
                name,
                204,
                "Everything that this API has.",
                (
                    "Access-Control-Allow-Methods",
                    "Access-Control-Allow-Headers",
                    "Access-Control-Max-Age",
                ),
            )
        },
    }


# Examples


SAMPLES: Final = {
    "listStreams": "/v1/streams?prefix=chat/",
    "getHealth": "/health",
    "getLanding": "/",
    "getDocs": "/docs",
    "getDocument": "/openapi.json",
}


def _samples(commands: Mapping[str, str]) -> list[Json]:
    return [
        {"lang": "Shell", "label": label, "source": source} for label, source in commands.items()
    ]


def _stream_samples(url: str) -> dict[str, dict[str, str]]:
    """Commands for each method that work in this order; a test runs them."""
    json_type = "-H 'Content-Type: application/json'"
    return {
        "put": {
            "A stream of JSON messages": f"curl -i -X PUT {url} \\\n  {json_type}",
            "With first data, expiring when unused for an hour": (
                f"curl -i -X PUT {url}-notes \\\n  -H 'Content-Type: text/plain'"
                " \\\n  -H 'Stream-TTL: 3600' \\\n  -d 'first line'"
            ),
            "A fork: begins with all that the other one holds": (
                f"curl -i -X PUT {url}-fork \\\n  -H 'Stream-Forked-From: {MAIN}chat/room-1'"
            ),
        },
        "post": {
            "Two messages": f"curl -i {url} \\\n  {json_type} \\\n"
            """  -d '[{"text":"hello"},{"text":"world"}]'""",
            "As a producer: run it twice, it is appended once": (
                f"curl -i {url} \\\n  {json_type} \\\n  -H 'Producer-Id: worker-7' \\\n"
                "  -H 'Producer-Epoch: 0' \\\n  -H 'Producer-Seq: 0' \\\n"
                """  -d '{"text":"once"}'"""
            ),
            "Close it": f"curl -i -X POST {url}-fork -H 'Stream-Closed: true'",
        },
        "get": {
            "Everything": f"curl -i {url}",
            "What comes next, as soon as it comes": f"curl -i '{url}?offset=now&live=long-poll'",
            "Everything, then all that follows": f"curl -N '{url}?offset=-1&live=sse'",
        },
        "head": {"": f"curl -I {url}"},
        "delete": {"": f"curl -i -X DELETE {url}-notes"},
        "options": {"": f"curl -i -X OPTIONS {url}"},
    }


def _guide(base: str, settings: Settings) -> str:
    url = f"{base}{MAIN}chat/room-1"
    return f"""\
Tailrace keeps **streams**: append-only logs that live at a URL. Any HTTP client can create one,
append to it, read it from any point and follow it live, and pick up where it left off after a
reload, a crash or a lost connection. It speaks the Durable Streams protocol, so its clients work
here as they are.

## Quick start

```
# Create a stream of JSON messages
curl -X PUT {url} -H 'Content-Type: application/json'

# Append to it
curl {url} -H 'Content-Type: application/json' -d '{{"text":"hello"}}'

# Read it
curl {url}

# Follow it, from the beginning
curl -N '{url}?offset=-1&live=sse'
```

## Offsets

Every answer says in `Stream-Next-Offset` where to go on; pass it back as `?offset=`. Offsets are
opaque, but those of one stream sort as text in the order of the log. `-1` is the beginning, `now`
the end.

## Live reads

At the end of a stream, read on with `live=long-poll` (one answer at a time, after at most
{settings.long_poll_timeout:g} seconds) or `live=sse` (server-sent events, which browsers and
proxies understand). Both need an `offset`, and neither loses or repeats data when connections
break: reconnect with the last offset.

## Content types

A stream has one content type, given when it is created.

- `application/json`: a log of messages. An append is one JSON value, or an array of values, each a
  message of its own. A read gives an array of messages.
- Everything else: a log of bytes. Appends are joined as they are.

## Safe retries

Creating, closing and reading can simply be repeated. For appends that must arrive exactly once
send `Producer-Id`, `Producer-Epoch` and `Producer-Seq`, and count `Producer-Seq` up from 0 with
each request: what arrives twice is answered with 204 and appended once, what arrives too early
with 409, and what comes from an instance with an older epoch with 403.

## Closing

A closed stream takes no more appends, and readers learn that they have everything by
`Stream-Closed: true`. Closing can be part of the last append, and cannot be undone.

## Expiry

With `Stream-TTL` a stream expires when nobody has read or written it for so many seconds, with
`Stream-Expires-At` at a fixed time. An expired stream is gone as if it had been deleted.

## Forks

A fork begins with another stream's data up to an offset and goes its own way from there. Nothing
is copied, the offsets are the same in both, and what happens to one later is not seen in the
other.

## Caching

Answers are made for browsers, proxies and CDNs: a piece that cannot change has
`{CHUNK_CACHING.decode()}`, the end of a stream `{TAIL_CACHING.decode()}`, a long-poll
`{LIVE_CACHING.decode()}`, and `ETag` with `If-None-Match` saves the body. Bodies of
{settings.compress_bytes:,} bytes or more are compressed when the client accepts that.

## Access

The server asks for no credentials; put it behind something that does. Scripts of every site may
use it, and may send `Authorization` for such a proxy.
"""
