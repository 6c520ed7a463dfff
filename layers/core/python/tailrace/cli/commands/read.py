"""`tailrace read`, `head` and `tail`: print the content of a stream, chunk by chunk."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from tailrace.cli.options import (
    HeaderText,
    Instant,
    Output,
    StreamName,
    client_command,
    to_json_line,
)
from tailrace.log.json_mode import split

if TYPE_CHECKING:
    from tailrace.cli.client import CommandClient
    from tailrace.client import Stream, StreamChunk

LAST_BYTES: Final = 16 << 10
"""Bytes from the end of a text in which its last lines are looked for first."""

CHARACTER_BYTES: Final = 4
"""Bytes of the longest character: the last bytes of a text begin at a whole one."""

LINES: Final = 10
"""Messages or lines that `head` and `tail` print unless another number is asked for."""

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
@click.argument("stream", type=StreamName())
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
@click.argument("stream", type=StreamName())
@click.option(
    "-n",
    "--first",
    type=click.IntRange(min=0),
    metavar="N",
    default=LINES,
    show_default=True,
    help="How many messages (JSON) or lines to print.",
)
@raw_option
@client_command
def head(client: CommandClient, out: Output, stream: str, first: int, raw: bool) -> None:
    """Print the first messages or lines of STREAM.

    For its metadata, see `tailrace info`.
    """
    target = client.locate(stream)
    with client.stream(target, f"read '{target.name}'") as handle:
        for chunk in take_first(handle.chunks(), first):
            out.write(format_chunk(chunk, raw=raw, as_json=out.as_json))


@click.command()
@click.argument("stream", type=StreamName())
@click.option("-f", "--follow", is_flag=True, help="Go on with what is appended.")
@click.option(
    "-n",
    "--last",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Print the last N messages (JSON) or lines; 0 for only what is new.  [default: {LINES}]",
)
@click.option(
    "--offset",
    type=HeaderText(),
    help="Start at this offset instead: -1 is the beginning, now the end.",
)
@since_option
@raw_option
@client_command
def tail(
    client: CommandClient,
    out: Output,
    stream: str,
    follow: bool,
    last: int | None,
    offset: str | None,
    since: str | None,
    raw: bool,
) -> None:
    """Print the last messages or lines of STREAM, and with -f those that follow.

    With -f it ends when the stream is closed, and reconnects after a restart of the server.
    """
    check_start(offset=offset, last=last, since=since)
    if last == 0:
        offset = "now"
    elif offset is None and since is None:
        last = LINES if last is None else last
    target = client.locate(stream)
    with client.stream(target, f"read '{target.name}'") as handle:
        chunks = iter([read_last(handle, last)]) if last else handle.chunks(offset, since=since)
        for chunk in chunks:
            # The end of the stream is no content, but tells programs where it is.
            if offset != "now" or out.as_json:
                out.write(format_chunk(chunk, raw=raw, as_json=out.as_json))
        if not follow:
            return
        client.repeat(None)
        for news in handle.tail(after=chunk, live="long-poll"):
            out.write(format_chunk(news, raw=raw, as_json=out.as_json))


def take_first(chunks: Iterable[StreamChunk], count: int) -> Iterator[StreamChunk]:
    """The first messages, or lines, of chunks; one that is cut has no offset to go on at."""
    from tailrace.client import ContentKind

    for chunk in chunks:
        if chunk.kind is ContentKind.JSON:
            messages = split_messages(chunk)
            taken = messages[:count]
            is_whole = len(taken) == len(messages)
            body = chunk.body if is_whole else b"[%b]" % b",".join(taken)
            count -= len(taken)
        else:
            body, lines = take_first_lines(chunk.body, count)
            is_whole = len(body) == len(chunk.body)
            count -= lines
        if not is_whole:
            chunk = replace(chunk, body=body, next_offset="", up_to_date=False, closed=False)
        yield chunk
        if not count:
            return


def take_first_lines(text: bytes, count: int) -> tuple[bytes, int]:
    """The first lines of a text, and how many of them are complete."""
    place = lines = 0
    while lines < count:
        end = text.find(b"\n", place)
        if end < 0:
            return text, lines
        place, lines = end + 1, lines + 1
    return text[:place], lines


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
            "next_offset": chunk.next_offset or None,
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
