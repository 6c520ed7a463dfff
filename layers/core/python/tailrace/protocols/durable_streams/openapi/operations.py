"""The operations of the stream routes; and FastAPI's, completed."""

from __future__ import annotations

from tailrace.limits import CONTENT_TYPE_BYTES
from tailrace.log.content import DEFAULT_TYPE
from tailrace.log.offsets import token
from tailrace.protocols.durable_streams.openapi.components import Components
from tailrace.protocols.durable_streams.openapi.failures import ANY_ROUTE, OWN_ERRORS
from tailrace.protocols.durable_streams.openapi.guide import SAMPLES, code_samples, stream_samples
from tailrace.protocols.durable_streams.openapi.headers import MAIN, SHORT, Json
from tailrace.settings import Settings

STREAMS, SERVER = "Streams", "Server"


def completed(item: Json, components: Components, base: str) -> Json:
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
            operation["x-codeSamples"] = code_samples({"": f"curl '{base}{SAMPLES[main]}'"})
        else:
            operation["x-same-as"] = main
    return item


def stream_paths(components: Components, base: str, settings: Settings) -> dict[str, Json]:
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
        operation.setdefault("parameters", []).extend(_parameters("X-Request-ID"))
        short[method] = {
            **operation,
            "operationId": f"{name}Short",
            "description": f"The same as `{method.upper()} {MAIN}{{path}}`.",
            "x-same-as": name,
        }
        url = f"{base}{MAIN}chat/room-1"
        main[method] = {**operation, "x-codeSamples": code_samples(stream_samples(url)[method])}
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
            "text/plain": {
                "schema": {"type": "string", "description": "Text, as any `text/*`."},
                "example": "hello\n",
            },
            DEFAULT_TYPE: {
                "schema": {"type": "string", "format": "binary", "description": "Bytes."}
            },
            "*/*": {"schema": {"description": "Any other type: bytes, too."}},
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


def _create(components: Components) -> Json:
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


def _append(components: Components) -> Json:
    name = "appendToStream"
    return {
        "operationId": name,
        "summary": "Append or close",
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


def _read(components: Components, settings: Settings) -> Json:
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
        "parameters": _parameters(
            "offset", "live", "cursor", "If-None-Match", "Accept-Encoding", "X-Signed", "X-JID"
        ),
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
                    "Cache-Tag": "Names the stream to caches. Not with `live=sse`.",
                    "Content-Security-Policy": "Scripts in the data do not run as the server's.",
                    "Vary": "Present when the type is one that is compressed.",
                    "Content-Encoding": "Present when the body is compressed.",
                    "Stream-SSE-Data-Encoding": "With `live=sse`, when `data` events are base64.",
                    "X-Accel-Buffering": "With `live=sse`.",
                },
                content={
                    "application/json": {
                        "schema": {
                            "type": "array",
                            "items": {},
                            "description": "Messages, when that is the stream's type.",
                        },
                        "example": [{"text": "hello"}, {"text": "world"}],
                    },
                    "text/event-stream": {
                        "schema": {"description": "With `live=sse`."},
                        "example": "event: data\n"
                        'data:[{"text":"hello"}]\n\n'
                        "event: control\n"
                        f'data:{{"streamNextOffset":"{token(1, 1)}","streamCursor":"3312000",'
                        '"upToDate":true}\n\n',
                    },
                    "*/*": {"schema": {"description": "Bytes, for streams of any other type."}},
                },
                links=_read_on("readOn"),
            ),
            "204": components.response(
                name,
                204,
                "A long-poll found nothing: ask again, unless the stream is closed.",
                (
                    "Stream-Next-Offset",
                    "Stream-Up-To-Date",
                    "Stream-Cursor",
                    "Cache-Control",
                    "Cache-Tag",
                ),
                {"Stream-Closed": "Present when the stream is closed: nothing will follow."},
            ),
            "304": components.response(
                name,
                304,
                "What `If-None-Match` names is what the answer would have been.",
                ("Stream-Next-Offset", "Cache-Control", "Cache-Tag", "ETag"),
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


def _inspect(components: Components) -> Json:
    name = "inspectStream"
    return {
        "operationId": name,
        "summary": "Look at a stream",
        "description": "Where the stream ends, its type, whether it is closed and when it expires."
        " Does not renew its TTL.",
        "parameters": _parameters("X-Signed", "X-JID"),
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


def _delete(components: Components) -> Json:
    name = "deleteStream"
    return {
        "operationId": name,
        "summary": "Delete a stream",
        "description": "Its path is free again at once, unless streams were forked from it: then"
        " its data is kept for them, and the path answers 410 until the last of them is gone.",
        "responses": {"204": components.response(name, 204, "Deleted.")},
    }


def _preflight(components: Components) -> Json:
    name = "preflightStream"
    return {
        "operationId": name,
        "summary": "Preflight for browsers",
        "description": "The CORS preflight: what scripts of the sites that may use the server"
        " can do, whether or not the stream exists.",
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
