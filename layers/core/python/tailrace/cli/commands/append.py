"""`tailrace append`: content from a file, stdin or the command line, exactly once."""

from __future__ import annotations

import itertools
import secrets
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from tailrace.cli.failures import Exit, Failure
from tailrace.cli.options import HeaderText, client_command
from tailrace.cli.output import Output, counted

if TYPE_CHECKING:
    from tailrace.cli.address import Stream
    from tailrace.cli.client import Client
    from tailrace.cli.input import Piece
    from tailrace.log.content import Mode

LONG_INPUT: Final = 1.0
"""Seconds from which on a progress bar is worth showing."""


class Appender:
    """Sends pieces one after the other as one producer, so that a repeated request counts once."""

    def __init__(
        self, client: Client, target: Stream, content_type: str, seq: str | None, closing: bool
    ) -> None:
        self.appends = self.messages = self.bytes = 0
        self.next_offset: str | None = None
        self.closed = False
        self._client = client
        self._target = target
        self._closing = closing
        self._headers = {
            "Content-Type": content_type,
            "Producer-Id": f"cli-{secrets.token_hex(8)}",
            "Producer-Epoch": "0",
        }
        if seq is not None:
            self._headers["Stream-Seq"] = seq

    def send(self, piece: Piece) -> None:
        self._post(piece.body, closing=self._closing and piece.last)
        self.messages += piece.messages
        self.bytes += len(piece.body)

    def finish(self) -> None:
        """Close what no last piece could close, for input whose end showed too late."""
        if self._closing and not self.closed:
            self._post(b"", closing=True)

    def _post(self, body: bytes, *, closing: bool) -> None:
        headers = {**self._headers, "Producer-Seq": str(self.appends)}
        if closing:
            headers["Stream-Closed"] = "true"
        response = self._client.send(
            "POST",
            self._target,
            doing=f"append to '{self._target.name}'",
            headers=headers,
            content=body,
        )
        self.appends += 1
        self.next_offset = response.headers.get("Stream-Next-Offset", self.next_offset)
        self.closed = closing


@click.command()
@click.argument("stream")
@click.argument("file", type=click.File("rb"), required=False)
@click.option(
    "-m",
    "--message",
    "messages",
    multiple=True,
    metavar="TEXT",
    help="Append this text instead of a file; may be given several times.",
)
@click.option(
    "-l",
    "--lines",
    "by_lines",
    is_flag=True,
    help="Each line is a message; in a JSON stream each line is a JSON value.",
)
@click.option("--seq", type=HeaderText(), help="Stream-Seq to send; everything goes in one append.")
@click.option("--close", is_flag=True, help="Close the stream with the last append.")
@click.option(
    "--batch-bytes",
    type=click.IntRange(min=1),
    default=256 << 10,
    show_default=True,
    help="With --lines: most bytes of one append.",
)
@click.option(
    "--batch-lines",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="With --lines: most lines of one append.",
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="How often a failed request is repeated; what arrived is never appended twice.",
)
@client_command
def append(
    client: Client,
    out: Output,
    stream: str,
    file: BinaryIO | None,
    messages: tuple[str, ...],
    by_lines: bool,
    seq: str | None,
    close: bool,
    batch_bytes: int,
    batch_lines: int,
    retries: int,
) -> None:
    """Append FILE, stdin or messages to STREAM.

    Without --lines the input is one append; a stream that is not JSON gets it in blocks of 1 MiB.
    """
    from tailrace.log.content import DEFAULT_TYPE, mode

    if file and messages:
        raise click.UsageError("give a FILE or --message, not both")
    if not file and not messages:
        if sys.stdin.isatty():
            raise click.UsageError("nothing to append; give a FILE, - for stdin, or --message")
        file = sys.stdin.buffer
    target = client.stream(stream)
    head = client.send("HEAD", target, doing=f"append to '{target.name}'")
    content_type = head.headers.get("Content-Type", DEFAULT_TYPE)
    pieces = _pieces(
        file, messages, mode(content_type), by_lines, seq is not None, batch_bytes, batch_lines
    )
    client.retries = retries
    appender = Appender(client, target, content_type, seq, close)
    quiet = out.as_json or not sys.stderr.isatty()
    begun = time.monotonic()
    try:
        with _progress(file) as bar:
            for piece in pieces:
                if piece.body:
                    appender.send(piece)
                bar.hidden = quiet or time.monotonic() - begun < LONG_INPUT
                bar.update(piece.size if bar.length else piece.messages)
            appender.finish()
    except Failure as failure:
        failure.message += _already(appender)
        raise
    if not appender.appends and not by_lines:
        raise Failure("nothing to append: the input is empty", Exit.USAGE, code="EMPTY_BODY")
    _report(out, target, appender, counts=by_lines or bool(messages))


def _pieces(
    file: BinaryIO | None,
    messages: tuple[str, ...],
    mode: Mode,
    by_lines: bool,
    at_once: bool,
    batch_bytes: int,
    batch_lines: int,
) -> Iterator[Piece]:
    from tailrace.cli import input as source

    if file is None:
        texts = [text.encode(errors="surrogateescape") for text in messages]
        return source.given(texts, mode, lines=by_lines)
    if not by_lines:
        return source.whole(file, mode, at_once=at_once)
    name = getattr(file, "name", "the input")
    if at_once:
        return source.lines_at_once(file, mode, name)
    return source.lines(file, mode, name, most_bytes=batch_bytes, most_lines=batch_lines)


def _progress(file: BinaryIO | None) -> Any:
    """A bar on stderr: bytes of a file, or messages of a pipe whose end nobody knows."""
    from tailrace.cli.input import regular_size

    size = regular_size(file) if file else None
    return click.progressbar(
        None if size else itertools.count(),
        length=size or None,
        label="appending",
        show_pos=not size,
        hidden=True,
        file=sys.stderr,
    )


def _already(appender: Appender) -> str:
    if not appender.appends:
        return ""
    done = counted(appender.messages, "message")
    return f"; {done} ({counted(appender.bytes, 'byte')}) before that were appended"


def _report(out: Output, target: Stream, appender: Appender, *, counts: bool) -> None:
    size = counted(appender.bytes, "byte")
    what = f"{counted(appender.messages, 'message')} ({size})" if counts else size
    sentence = f"appended {what} to {target.name}"
    if appender.next_offset:
        sentence += f", next offset {appender.next_offset}"
    out.result(
        sentence + (", closed" if appender.closed else ""),
        stream=target.name,
        url=target.url,
        appends=appender.appends,
        messages=appender.messages if counts else None,
        bytes=appender.bytes,
        next_offset=appender.next_offset,
        closed=appender.closed,
    )
