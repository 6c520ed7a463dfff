"""Reads a stream chunk by chunk, and formats the chunks for output."""

from __future__ import annotations

import base64
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tailrace.cli.options import to_json_line
from tailrace.log.content import DEFAULT_TYPE, Mode
from tailrace.log.content import mode as parse_mode
from tailrace.log.json_mode import split

if TYPE_CHECKING:
    import httpx

    from tailrace.cli.address import StreamAddress
    from tailrace.cli.client import CommandClient

SHORTEST_POLL: Final = 0.2
"""Seconds: a pause follows a faster long-poll without data, to prevent a busy loop."""

PAUSE: Final = 1.0
"""Seconds of that pause."""


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """One response to a read, and where the next one starts."""

    body: bytes
    mode: Mode
    next_offset: str
    up_to_date: bool
    closed: bool
    cursor: str | None

    def messages(self) -> list[bytes]:
        """The JSON messages, each with its original text."""
        return split(self.body.strip()[1:-1])


def catch_up(client: CommandClient, stream: StreamAddress, offset: str) -> Iterator[ReadChunk]:
    """Read from an offset to the current end."""
    while True:
        response = _get(client, stream, {"offset": offset})
        chunk = _parse_chunk(
            response, parse_mode(response.headers.get("Content-Type", DEFAULT_TYPE)), offset
        )
        yield chunk
        if chunk.up_to_date or chunk.closed or chunk.next_offset == offset:
            return
        offset = chunk.next_offset


def follow(client: CommandClient, stream: StreamAddress, last: ReadChunk) -> Iterator[ReadChunk]:
    """Read new data after a chunk until the stream is closed, also after the server was down."""
    while not last.closed:
        params = {"live": "long-poll", "offset": last.next_offset}
        if last.cursor is not None:
            params["cursor"] = last.cursor
        started = time.monotonic()
        chunk = _parse_chunk(_get(client, stream, params, live=True), last.mode, last.next_offset)
        if chunk.body or chunk.closed:
            yield chunk
        if (
            not chunk.closed
            and chunk.next_offset == last.next_offset
            and time.monotonic() - started < SHORTEST_POLL
        ):
            time.sleep(PAUSE)
        last = chunk


def take_last(chunks: Iterable[ReadChunk], count: int) -> ReadChunk:
    """Combine the last messages, or lines, of many chunks into one chunk."""
    last: ReadChunk | None = None
    messages: deque[bytes] = deque(maxlen=count)
    lines = b""
    for last in chunks:
        if last.mode is Mode.JSON:
            messages.extend(last.messages())
        else:
            lines = take_last_lines(lines + last.body, count)
    assert last is not None, "a read that succeeds has at least one chunk"
    body = b"[%b]" % b",".join(messages) if last.mode is Mode.JSON else lines
    return replace(last, body=body)


def take_last_lines(text: bytes, count: int) -> bytes:
    parts = count + text.endswith(b"\n")
    return b"\n".join(text.rsplit(b"\n", parts)[-parts:])


def format_chunk(chunk: ReadChunk, *, raw: bool = False, as_json: bool = False) -> bytes:
    """Format a chunk for stdout."""
    if as_json:
        return _format_object(chunk)
    if chunk.mode is not Mode.JSON:
        return chunk.body
    if raw:
        return chunk.body + b"\n" if chunk.body else b""
    return b"".join(_on_one_line(message) + b"\n" for message in chunk.messages())


def _format_object(chunk: ReadChunk) -> bytes:
    head = to_json_line(
        {
            "next_offset": chunk.next_offset,
            "up_to_date": chunk.up_to_date,
            "closed": chunk.closed,
        }
    ).encode()
    return b"%b,%b}\n" % (head[:-1], _format_content(chunk))


def _format_content(chunk: ReadChunk) -> bytes:
    if chunk.mode is Mode.JSON:
        return b'"messages":' + (_on_one_line(chunk.body) or b"[]")
    if chunk.mode is Mode.TEXT:
        try:
            return b'"text":' + to_json_line(chunk.body.decode()).encode()
        except UnicodeDecodeError:
            pass  # a chunk may end inside a character
    return b'"base64":"' + base64.b64encode(chunk.body) + b'"'


def _on_one_line(json_text: bytes) -> bytes:
    """JSON on one line: an unescaped line break can only be white space between tokens."""
    return json_text.replace(b"\n", b" ").replace(b"\r", b" ")


def _get(
    client: CommandClient, stream: StreamAddress, params: dict[str, str], *, live: bool = False
) -> httpx.Response:
    from tailrace.cli.client import LIVE_TIMEOUT, TIMEOUT

    return client.send(
        "GET",
        stream,
        action=f"read '{stream.name}'",
        params=params,
        timeout=LIVE_TIMEOUT if live else TIMEOUT,
    )


def _parse_chunk(response: httpx.Response, mode: Mode, offset: str) -> ReadChunk:
    headers = response.headers
    return ReadChunk(
        body=response.content,
        mode=mode,
        next_offset=headers.get("Stream-Next-Offset", offset),
        up_to_date=headers.get("Stream-Up-To-Date", "").lower() == "true",
        closed=headers.get("Stream-Closed", "").lower() == "true",
        cursor=headers.get("Stream-Cursor"),
    )
