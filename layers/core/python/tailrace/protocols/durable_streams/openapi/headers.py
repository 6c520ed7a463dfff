"""Every header and query parameter, once."""

from __future__ import annotations

from typing import Any, Final

from tailrace.limits import MAX_INTEGER, PATH_BYTES, PRODUCER_ID_BYTES, STREAM_SEQ_BYTES
from tailrace.log.offsets import START
from tailrace.log.paths import RESERVED
from tailrace.web import messages
from tailrace.web.paths import PREFIXES

Json = dict[str, Any]

MAIN, SHORT = PREFIXES

_TEXT: Final = {"type": "string"}
_OFFSET: Final = {"type": "string", "pattern": "^[0-9]{16}_[0-9]{16}$"}
_COUNTER: Final = {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER}
_TIME: Final = {"type": "string", "format": "date-time"}


def _header(description: str, schema: Json) -> Json:
    return {"description": description, "schema": schema}


def _parameter(name: str, place: str, description: str, schema: Json, **more: Any) -> Json:
    return {"name": name, "in": place, "description": description, "schema": schema, **more}


HEADERS: Final[dict[str, Json]] = {
    "Stream-Next-Offset": _header(
        "The offset after what was written or read: pass it as `offset` to go on.", _OFFSET
    ),
    "Stream-Cursor": _header(
        "Pass it as `cursor` with the next long-poll.",
        {"type": "string", "pattern": "^[0-9]+$"},
    ),
    "Stream-Up-To-Date": _header(
        "Present when the answer reaches the end of what the stream holds now.", {"const": "true"}
    ),
    "Stream-Closed": _header(
        "Present when the stream is closed; on a read, when it was read to its end.",
        {"const": "true"},
    ),
    "Stream-SSE-Data-Encoding": _header(
        "Present when `data` events carry base64: the stream's type is neither"
        " `text/*` nor `application/json`.",
        {"const": "base64"},
    ),
    "Stream-TTL": _header(
        "Seconds without reads and writes after which the stream expires.", _COUNTER
    ),
    "Stream-Expires-At": _header("When the stream expires.", _TIME),
    "Producer-Epoch": _header("The producer's epoch.", _COUNTER),
    "Producer-Seq": _header("The highest `Producer-Seq` accepted from this producer.", _COUNTER),
    "Producer-Expected-Seq": _header("The `Producer-Seq` that has to come next.", _COUNTER),
    "Producer-Received-Seq": _header("The `Producer-Seq` of this request.", _COUNTER),
    "ETag": _header(
        "Names exactly these bytes; send it as `If-None-Match`.",
        _TEXT,
    ),
    "Location": _header("The stream's absolute URL.", {"type": "string", "format": "uri"}),
    "Content-Type": _header("The stream's content type, as it was created.", _TEXT),
    "Content-Encoding": _header(
        "Present when the body is compressed.", {"enum": ["zstd", "br", "gzip", "deflate"]}
    ),
    "Vary": _header("What else of a request a cache has to look at.", _TEXT),
    "Cache-Tag": _header(
        "Names the stream until it is deleted: a cache that knows tags can forget it as a whole.",
        {"type": "string", "pattern": "^s-[0-9a-f]{16}$"},
    ),
    "Cache-Control": _header("How long a cache may keep the answer.", _TEXT),
    "Retry-After": _header("Seconds to wait before a retry.", {"type": "integer", "minimum": 0}),
    "Allow": _header("The methods of this path.", _TEXT),
    "Accept-Encoding": _header("The encodings that a body may have.", {"const": "identity"}),
    "X-Accel-Buffering": _header("Tells proxies to pass events on at once.", {"const": "no"}),
    "X-Content-Type-Options": _header("Browsers do not guess types.", {"const": "nosniff"}),
    "Cross-Origin-Resource-Policy": _header("Any site may load this.", {"const": "cross-origin"}),
    "X-Request-ID": _header(
        "The name of this request in the server's log: the client's own, if it gave one.", _TEXT
    ),
    "WWW-Authenticate": _header("What kind of credentials is asked for, and why.", _TEXT),
    "Access-Control-Allow-Origin": _header(
        "The site whose pages may read this: `*` is any. Absent when this one's may not.", _TEXT
    ),
    "Access-Control-Expose-Headers": _header(
        "What scripts of other sites may see: "
        + ", ".join(f"`{name}`" for name in messages.RESPONSE_HEADERS),
        _TEXT,
    ),
    "Access-Control-Allow-Methods": _header(
        "The methods that scripts of other sites may use.", {"const": messages.METHODS}
    ),
    "Access-Control-Allow-Headers": _header(
        "The headers that scripts of other sites may send: "
        + ", ".join(f"`{name}`" for name in messages.REQUEST_HEADERS),
        _TEXT,
    ),
    "Access-Control-Max-Age": _header(
        "Seconds for which a browser may remember this.", {"type": "integer"}
    ),
    "Content-Security-Policy": _header("The page loads nothing from anywhere.", _TEXT),
}
COMMON: Final = (*(name.decode().title() for name, _ in messages.COMMON_HEADERS), "X-Request-ID")
"""On every answer."""

CORS: Final = ("Access-Control-Allow-Origin", "Access-Control-Expose-Headers")
"""On every answer for pages that may use the server."""

_PARAMETERS: Final = (
    _parameter(
        "path",
        "path",
        "The stream's name, with as many segments as you like, such as `chat/room-1`: it is the"
        " whole rest of the URL's path, so slashes are written as they are (which OpenAPI cannot"
        " say). A slash inside a segment is `%2F`. Spellings that differ only in percent-encoding"
        f" name the same stream. At most {PATH_BYTES:,} bytes, percent-encoded; no `.` or `..`"
        f" segments, no control characters, and the first segment is not `{RESERVED}`.",
        {"type": "string", "minLength": 1, "maxLength": PATH_BYTES},
        required=True,
        example="chat/room-1",
    ),
    _parameter(
        "offset",
        "query",
        "Where to begin: a `Stream-Next-Offset` of this stream, `-1` for the beginning, or `now`"
        " for the end. Without it a read begins at the beginning; live reads require it.",
        {"type": "string", "pattern": "^(-1|now|[0-9]{16}_[0-9]{16})$"},
        example="-1",
    ),
    _parameter(
        "live",
        "query",
        "`long-poll`: wait until there is data after the offset. `sse`: follow the stream as"
        " server-sent events. Without it the answer is what is there now.",
        {"type": "string", "enum": ["long-poll", "sse"]},
    ),
    _parameter(
        "cursor",
        "query",
        "The `Stream-Cursor` (`streamCursor` of SSE) of the answer before: lets caches serve many"
        " live readers with one request. What is not a cursor is ignored.",
        _TEXT,
        example="3312000",
    ),
    _parameter(
        "Stream-TTL",
        "header",
        "Let the stream expire after this many seconds without a read or write. Not together with"
        " `Stream-Expires-At`.",
        _COUNTER,
        example=3600,
    ),
    _parameter(
        "Stream-Expires-At",
        "header",
        "Let the stream expire at this RFC 3339 time, used or not.",
        _TIME,
        example="2030-01-31T12:00:00Z",
    ),
    _parameter(
        "Stream-Closed",
        "header",
        "`true` closes the stream with this request: its data, if any, is the last. Any other"
        " value is ignored.",
        {"type": "string", "enum": ["true", "false"]},
    ),
    _parameter(
        "Stream-Seq",
        "header",
        "A text that sorts, byte by byte, after that of every append before; else the append is"
        f" refused. For writers that coordinate with each other. At most {STREAM_SEQ_BYTES} bytes.",
        {"type": "string", "maxLength": STREAM_SEQ_BYTES},
        example="0042",
    ),
    _parameter(
        "Producer-Id",
        "header",
        "The name of a producer whose retries are recognised. The three `Producer-` headers come"
        f" together or not at all. At most {PRODUCER_ID_BYTES} bytes.",
        {"type": "string", "minLength": 1, "maxLength": PRODUCER_ID_BYTES},
        example="worker-7",
    ),
    _parameter(
        "Producer-Epoch",
        "header",
        "Which instance of the producer this is: one more after each restart.",
        _COUNTER,
        example=0,
    ),
    _parameter(
        "Producer-Seq",
        "header",
        "The number of this request in its epoch: 0, 1, 2 and so on.",
        _COUNTER,
        example=0,
    ),
    _parameter(
        "Stream-Forked-From",
        "header",
        f"Make the stream a fork of the one at this URL path, such as `{MAIN}chat/room-1`.",
        {"type": "string", "pattern": f"^({MAIN}|{SHORT})."},
        example=f"{MAIN}chat/room-1",
    ),
    _parameter(
        "Stream-Fork-Offset",
        "header",
        "The fork shares what its source holds before this offset; without it, all.",
        _OFFSET,
        example=START,
    ),
    _parameter(
        "Stream-Fork-Sub-Offset",
        "header",
        "Take this many bytes (messages of a JSON stream) of the append at the fork's offset, too.",
        _COUNTER,
        example=1,
    ),
    _parameter(
        "If-None-Match",
        "header",
        "One or more `ETag`s that the client holds, or `*`: if one still is right, the answer is"
        " 304 without a body.",
        _TEXT,
        example='"1f0c:0:2"',
    ),
    _parameter(
        "X-Signed",
        "header",
        "The signed name of the stream, which is enough to read it. As `signed` in the query, too.",
        _TEXT,
    ),
    _parameter(
        "X-JID",
        "header",
        "A token that says who reads, where that is asked for. As `jid` in the query, too.",
        _TEXT,
    ),
    _parameter(
        "X-Request-ID",
        "header",
        "A name for this request, for the log: letters, digits and `._:-`, at most 64.",
        _TEXT,
        example="checkout-7f3a",
    ),
    _parameter(
        "Accept-Encoding",
        "header",
        "The compressions that the client reads: `zstd`, `br`, `gzip` or `deflate`.",
        _TEXT,
        example="zstd, br;q=0.9, gzip;q=0.5",
    ),
)
PARAMETERS: Final[dict[str, Json]] = {each["name"]: each for each in _PARAMETERS}
