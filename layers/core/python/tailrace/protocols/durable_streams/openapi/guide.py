"""The introduction and the commands that go with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tailrace.auth.authorizer import is_open
from tailrace.auth.origins import Origins
from tailrace.protocols.durable_streams import caching
from tailrace.protocols.durable_streams.openapi.headers import MAIN, Json
from tailrace.settings import Settings

EXAMPLE_URL: Final = "http://localhost:4437"
"""What examples call when nobody said where the server is."""

SAMPLES: Final = {
    "listStreams": "/v1/streams?prefix=chat/",
    "getHealth": "/health",
    "getLanding": "/",
    "getDocs": "/docs",
    "getDocument": "/openapi.json",
}


_OPEN: Final = """\
This server asks for no credentials, and `Authorization` is not looked at: everybody who reaches it
may do everything."""

_CLOSED: Final = """\
Writing, deleting and listing take a bearer token (`Authorization: Bearer …`) whose claims name the
scope and the streams. Reading takes one, too, or the stream's signed name (`X-Signed`, or `signed`
in the query), unless the stream is public. Who shows nothing, or something bad, gets 401; who may
not, 403, whether the stream exists or not. What is private is kept by no shared cache."""


def code_samples(commands: Mapping[str, str]) -> list[Json]:
    return [
        {"lang": "Shell", "label": label, "source": source} for label, source in commands.items()
    ]


def stream_samples(url: str) -> dict[str, dict[str, str]]:
    """Commands for each method that work in this order; a test runs them."""
    json_type = "-H 'Content-Type: application/json'"
    return {
        "put": {
            "A stream of JSON messages": f"curl -i -X PUT {json_type} \\\n  {url}",
            "With first data, expiring when unused for an hour": (
                "curl -i -X PUT -H 'Content-Type: text/plain' \\\n"
                f"  -H 'Stream-TTL: 3600' -d 'first line' \\\n  {url}-notes"
            ),
            "A fork, beginning with all that the first one holds": (
                f"curl -i -X PUT \\\n  -H 'Stream-Forked-From: {MAIN}chat/room-1' \\\n  {url}-fork"
            ),
        },
        "post": {
            "Two messages": (
                f"curl -i -X POST {json_type} \\\n"
                """  -d '[{"text":"hello"},{"text":"world"}]' \\\n"""
                f"  {url}"
            ),
            "As a producer: sent twice, appended once": (
                f"curl -i -X POST {json_type} \\\n"
                "  -H 'Producer-Id: worker-7' \\\n"
                "  -H 'Producer-Epoch: 0' -H 'Producer-Seq: 0' \\\n"
                """  -d '{"text":"once"}' \\\n"""
                f"  {url}"
            ),
            "The end": f"curl -i -X POST -H 'Stream-Closed: true' \\\n  {url}-fork",
        },
        "get": {
            "All that is there": f"curl -i {url}",
            "What comes next, when it comes": f"curl -i '{url}?offset=now&live=long-poll'",
            "All that is there, and what follows": f"curl -N '{url}?offset=-1&live=sse'",
        },
        "head": {"": f"curl -I {url}"},
        "delete": {"": f"curl -i -X DELETE \\\n  {url}-notes"},
        "options": {"": f"curl -i -X OPTIONS \\\n  {url}"},
    }


def guide(base: str, settings: Settings) -> str:
    url = f"{base}{MAIN}chat/room-1"
    return f"""\
Tailrace keeps **streams**: append-only logs that live at a URL. Any HTTP client can create one,
append to it, read it from any point and follow it live, and pick up where it left off after a
reload, a crash or a lost connection. It speaks the Durable Streams protocol, so its clients work
here as they are.

## Quick start

```
# Create a stream of JSON messages
curl -X PUT -H 'Content-Type: application/json' \\
  {url}

# Append a message
curl -X POST -H 'Content-Type: application/json' \\
  -d '{{"text":"hello"}}' \\
  {url}

# Read: [{{"text":"hello"}}]
curl {url}

# Follow, from the beginning on
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
`{(caching.CHUNK % caching.CHUNK_SECONDS).decode()}`, {settings.cold_max_age} seconds once it
is history, the end of a stream `{caching.TAIL.decode()}`, a long-poll
`{caching.LIVE.decode()}`, and `ETag` with `If-None-Match` saves the body. Bodies of
{settings.compress_bytes:,} bytes or more are compressed when the client accepts that.

## Access

{_OPEN if is_open(settings) else _CLOSED}

Scripts of {"every site" if Origins(settings.allowed_origins).any else "some sites only"} may use
it. Every answer has an `X-Request-ID`, which the server's log has, too.
"""
