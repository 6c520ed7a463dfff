"""A stream's content as it arrives: chunks, and how they are printed."""

from __future__ import annotations

import base64
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tailrace.cli.output import as_line
from tailrace.log.content import DEFAULT_TYPE, Mode, mode
from tailrace.log.json_mode import split

if TYPE_CHECKING:
    import httpx

    from tailrace.cli.address import Stream
    from tailrace.cli.client import Client

QUICK: Final = 0.2
"""A long-poll that brings nothing sooner than this gets a pause, lest it turn into a busy loop."""

PAUSE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Chunk:
    body: bytes
    mode: Mode
    next_offset: str
    up_to_date: bool
    closed: bool
    cursor: str | None

    def messages(self) -> list[bytes]:
        """The text of each JSON message as it was stored."""
        return split(self.body.strip()[1:-1])


def catch_up(client: Client, stream: Stream, offset: str) -> Iterator[Chunk]:
    """What the stream holds from an offset to its present end."""
    while True:
        response = _get(client, stream, {"offset": offset})
        chunk = _chunk(response, mode(response.headers.get("Content-Type", DEFAULT_TYPE)), offset)
        yield chunk
        if chunk.up_to_date or chunk.closed or chunk.next_offset == offset:
            return
        offset = chunk.next_offset


def follow(client: Client, stream: Stream, last: Chunk) -> Iterator[Chunk]:
    """What is appended after a chunk, until the stream is closed; outlives a server's absence."""
    while not last.closed:
        params = {"live": "long-poll", "offset": last.next_offset}
        if last.cursor is not None:
            params["cursor"] = last.cursor
        begun = time.monotonic()
        chunk = _chunk(_get(client, stream, params, live=True), last.mode, last.next_offset)
        if chunk.body or chunk.closed:
            yield chunk
        if (
            not chunk.closed
            and chunk.next_offset == last.next_offset
            and time.monotonic() - begun < QUICK
        ):
            time.sleep(PAUSE)
        last = chunk


def newest(chunks: Iterable[Chunk], count: int) -> Chunk:
    """One chunk with the last messages, or lines, of many."""
    last: Chunk | None = None
    messages: deque[bytes] = deque(maxlen=count)
    lines = b""
    for last in chunks:
        if last.mode is Mode.JSON:
            messages.extend(last.messages())
        else:
            lines = last_lines(lines + last.body, count)
    assert last is not None, "a read that succeeds has at least one chunk"
    body = b"[%b]" % b",".join(messages) if last.mode is Mode.JSON else lines
    return replace(last, body=body)


def last_lines(text: bytes, count: int) -> bytes:
    parts = count + text.endswith(b"\n")
    return b"\n".join(text.rsplit(b"\n", parts)[-parts:])


def printed(chunk: Chunk, *, raw: bool = False, as_json: bool = False) -> bytes:
    """A chunk as it goes to stdout."""
    if as_json:
        return _printed_as_object(chunk)
    if chunk.mode is not Mode.JSON:
        return chunk.body
    if raw:
        return chunk.body + b"\n" if chunk.body else b""
    return b"".join(_on_one_line(message) + b"\n" for message in chunk.messages())


def _printed_as_object(chunk: Chunk) -> bytes:
    head = as_line(
        {
            "next_offset": chunk.next_offset,
            "up_to_date": chunk.up_to_date,
            "closed": chunk.closed,
        }
    ).encode()
    return b"%b,%b}\n" % (head[:-1], _content(chunk))


def _content(chunk: Chunk) -> bytes:
    if chunk.mode is Mode.JSON:
        return b'"messages":' + (_on_one_line(chunk.body) or b"[]")
    if chunk.mode is Mode.TEXT:
        try:
            return b'"text":' + as_line(chunk.body.decode()).encode()
        except UnicodeDecodeError:
            pass  # a chunk may end within a character
    return b'"base64":"' + base64.b64encode(chunk.body) + b'"'


def _on_one_line(json_text: bytes) -> bytes:
    """JSON without line breaks: a raw one can only be whitespace between two tokens."""
    return json_text.replace(b"\n", b" ").replace(b"\r", b" ")


def _get(
    client: Client, stream: Stream, params: dict[str, str], *, live: bool = False
) -> httpx.Response:
    from tailrace.cli.client import LIVE_TIMEOUT, TIMEOUT

    return client.send(
        "GET",
        stream,
        doing=f"read '{stream.name}'",
        params=params,
        timeout=LIVE_TIMEOUT if live else TIMEOUT,
    )


def _chunk(response: httpx.Response, kind: Mode, offset: str) -> Chunk:
    headers = response.headers
    return Chunk(
        body=response.content,
        mode=kind,
        next_offset=headers.get("Stream-Next-Offset", offset),
        up_to_date=headers.get("Stream-Up-To-Date", "").lower() == "true",
        closed=headers.get("Stream-Closed", "").lower() == "true",
        cursor=headers.get("Stream-Cursor"),
    )
