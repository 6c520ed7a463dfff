"""`tailrace read` and `tailrace tail`: print the content of a stream, chunk by chunk."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import click

from tailrace.cli.options import HeaderText, Instant, Output, client_command, to_json_line
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

LAST_BYTES: Final = 16 << 10
"""Bytes from the end of a text in which its last lines are looked for first."""

CHARACTER_BYTES: Final = 4
"""Bytes of the longest character: the last bytes of a text begin at a whole one."""

since_option = click.option(
    "--since",
    type=Instant(),
    metavar="TIME",
    help="Start with what was appended at this time, such as 2030-01-31T12:00:00Z, or this long"
    " ago: 90s, 15m, 12h, 7d.",
)
raw_option = click.option(
    "--raw", is_flag=True, help="JSON streams: print the arrays as the server sends them."
)


@click.command()
@click.argument("stream")
@click.option("--offset", type=HeaderText(), help="Start at this offset.  [default: the beginning]")
@since_option
@raw_option
@client_command
def read(
    client: CommandClient,
    out: Output,
    stream: str,
    offset: str | None,
    since: str | None,
    raw: bool,
) -> None:
    """Print the content of STREAM.

    Bytes are printed unchanged, a JSON stream as one message per line.
    """
    start = parse_start(offset=offset, since=since) or {"offset": "-1"}
    for chunk in catch_up(client, client.locate(stream), start):
        out.write(format_chunk(chunk, raw=raw, as_json=out.as_json))


@click.command()
@click.argument("stream")
@click.option(
    "--offset",
    type=HeaderText(),
    help="Start at this offset: -1 is the beginning, now the end.  [default: now]",
)
@click.option(
    "-n",
    "--last",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print the last N messages (JSON) or lines first.",
)
@since_option
@raw_option
@client_command
def tail(
    client: CommandClient,
    out: Output,
    stream: str,
    offset: str | None,
    last: int | None,
    since: str | None,
    raw: bool,
) -> None:
    """Follow STREAM and print new data.

    Ends when the stream is closed, and reconnects after a restart of the server.
    """
    target = client.locate(stream)
    start = parse_start(offset=offset, last=last, since=since) or {"offset": "now"}
    chunks = [read_last(client, target, last)] if last else catch_up(client, target, start)
    for chunk in chunks:
        if start != {"offset": "now"} or out.as_json:
            out.write(format_chunk(chunk, raw=raw, as_json=out.as_json))
    client.retries = None
    for new_chunk in follow(client, target, chunk):
        out.write(format_chunk(new_chunk, raw=raw, as_json=out.as_json))


def parse_start(**options: object) -> dict[str, str]:
    """Parse where a read begins into the parameter that says so; empty if no option does."""
    start = {name: str(value) for name, value in options.items() if value is not None}
    if len(start) > 1:
        names = " and ".join(f"--{name}" for name in start)
        raise click.UsageError(f"{names} exclude each other: each says where to start")
    return start


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


def catch_up(
    client: CommandClient, stream: StreamAddress, params: Mapping[str, str]
) -> Iterator[ReadChunk]:
    """Read to the current end; `params` say where to start."""
    while True:
        offset = params.get("offset", "")
        response = _get(client, stream, params)
        chunk = _parse_chunk(
            response, parse_mode(response.headers.get("Content-Type", DEFAULT_TYPE)), offset
        )
        yield chunk
        if chunk.up_to_date or chunk.closed or chunk.next_offset == offset:
            return
        params = {"offset": chunk.next_offset}


def follow(
    client: CommandClient, stream: StreamAddress, last: ReadChunk, *, timeouts: bool = False
) -> Iterator[ReadChunk]:
    """Read new data after a chunk until the stream is closed.

    `timeouts`: yield chunks without data, too, when the server has waited for some in vain."""
    while not last.closed:
        params = {"live": "long-poll", "offset": last.next_offset}
        if last.cursor is not None:
            params["cursor"] = last.cursor
        started = time.monotonic()
        chunk = _parse_chunk(_get(client, stream, params, live=True), last.mode, last.next_offset)
        if chunk.body or chunk.closed or timeouts:
            yield chunk
        if (
            not chunk.closed
            and chunk.next_offset == last.next_offset
            and time.monotonic() - started < SHORTEST_POLL
        ):
            time.sleep(PAUSE)
        last = chunk


def read_last(client: CommandClient, stream: StreamAddress, count: int) -> ReadChunk:
    """Read the last messages, or lines, as one chunk.

    A server counts messages, but not lines: they are looked for in the last bytes of the stream,
    of which each request asks for twice as many as the one before."""
    size = count
    while True:
        chunks = list(catch_up(client, stream, {"last": str(size)}))
        last = take_last(chunks, count)
        total = sum(len(chunk.body) for chunk in chunks)
        is_whole = total <= size - CHARACTER_BYTES
        if last.mode is Mode.JSON or len(last.body) < total or is_whole:
            return last
        size = max(2 * size, LAST_BYTES)


def take_last(chunks: Sequence[ReadChunk], count: int) -> ReadChunk:
    """Combine the last messages, or lines, of many chunks into one chunk."""
    last = chunks[-1]
    if last.mode is Mode.JSON:
        messages = [message for chunk in chunks for message in chunk.messages()]
        return replace(last, body=b"[%b]" % b",".join(messages[-count:]))
    return replace(last, body=take_last_lines(b"".join([each.body for each in chunks]), count))


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
    client: CommandClient, stream: StreamAddress, params: Mapping[str, str], *, live: bool = False
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
