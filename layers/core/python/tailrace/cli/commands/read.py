"""`tailrace read` and `tailrace tail`: print the content of a stream, chunk by chunk."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from tailrace.cli.options import HeaderText, Instant, Output, client_command, to_json_line
from tailrace.log.json_mode import split

if TYPE_CHECKING:
    from tailrace.cli.client import CommandClient
    from tailrace.client import Stream, StreamChunk

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
    check_start(offset=offset, since=since)
    target = client.locate(stream)
    with client.stream(target, f"read '{target.name}'") as handle:
        for chunk in handle.chunks(offset, since=since):
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
    check_start(offset=offset, last=last, since=since)
    target = client.locate(stream)
    with client.stream(target, f"read '{target.name}'") as handle:
        for chunk in _follow(client, handle, offset, last, since, as_json=out.as_json):
            out.write(format_chunk(chunk, raw=raw, as_json=out.as_json))


def _follow(
    client: CommandClient,
    stream: Stream,
    offset: str | None,
    last: int | None,
    since: str | None,
    *,
    as_json: bool,
) -> Iterator[StreamChunk]:
    if last is not None:
        chunk = read_last(stream, last)
        yield chunk
    else:
        offset = "now" if offset is None and since is None else offset
        for chunk in stream.chunks(offset, since=since):
            if as_json or offset != "now":
                yield chunk
    client.repeat(None)
    yield from stream.tail(after=chunk, live="long-poll")


def check_start(**options: object) -> None:
    given = [f"--{name}" for name, value in options.items() if value is not None]
    if len(given) > 1:
        names = " and ".join(given)
        raise click.UsageError(f"{names} exclude each other: each says where to start")


def read_last(stream: Stream, count: int) -> StreamChunk:
    """Read the last messages, or lines, as one chunk.

    A server counts messages, but not lines: they are looked for in the last bytes of the stream,
    of which each request asks for twice as many as the one before."""
    from tailrace.client import ContentKind

    size = count
    while True:
        chunk = stream.read(last=size)
        if chunk.kind is ContentKind.JSON:
            return chunk
        body = take_last_lines(chunk.body, count)
        is_whole = len(chunk.body) <= size - CHARACTER_BYTES
        if len(body) < len(chunk.body) or is_whole:
            return replace(chunk, body=body)
        size = max(2 * size, LAST_BYTES)


def take_last_lines(text: bytes, count: int) -> bytes:
    parts = count + text.endswith(b"\n")
    return b"\n".join(text.rsplit(b"\n", parts)[-parts:])


def format_chunk(chunk: StreamChunk, *, raw: bool = False, as_json: bool = False) -> bytes:
    """Format a chunk for stdout."""
    from tailrace.client import ContentKind

    if as_json:
        return _format_object(chunk)
    if chunk.kind is not ContentKind.JSON:
        return chunk.body
    if raw:
        return chunk.body + b"\n" if chunk.body else b""
    return b"".join(_on_one_line(message) + b"\n" for message in split_messages(chunk))


def split_messages(chunk: StreamChunk) -> list[bytes]:
    """The JSON messages of a chunk, each with its original text."""
    return split(chunk.body.strip()[1:-1])


def _format_object(chunk: StreamChunk) -> bytes:
    head = to_json_line(
        {
            "next_offset": chunk.next_offset,
            "up_to_date": chunk.up_to_date,
            "closed": chunk.closed,
        }
    ).encode()
    return b"%b,%b}\n" % (head[:-1], _format_content(chunk))


def _format_content(chunk: StreamChunk) -> bytes:
    from tailrace.client import ContentKind

    if chunk.kind is ContentKind.JSON:
        return b'"messages":' + (_on_one_line(chunk.body) or b"[]")
    if chunk.kind is ContentKind.TEXT:
        try:
            return b'"text":' + to_json_line(chunk.text()).encode()
        except UnicodeDecodeError:
            pass  # a chunk may end inside a character
    return b'"base64":"' + base64.b64encode(chunk.body) + b'"'


def _on_one_line(json_text: bytes) -> bytes:
    """JSON on one line: an unescaped line break can only be white space between tokens."""
    return json_text.replace(b"\n", b" ").replace(b"\r", b" ")
