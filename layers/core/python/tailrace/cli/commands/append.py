"""`tailrace append`: append a file, stdin or messages, exactly once."""

from __future__ import annotations

import itertools
import secrets
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from tailrace.cli.exit_codes import Exit, Failure
from tailrace.cli.options import HeaderText, Output, StreamName, client_command, format_count

if TYPE_CHECKING:
    from tailrace.cli.address import StreamAddress
    from tailrace.cli.client import CommandClient
    from tailrace.cli.input import InputBatch
    from tailrace.client import AppendResult, ProducerPlace, Stream
    from tailrace.log.content import Mode

LONG_INPUT: Final = 1.0
"""Seconds after which a progress bar is shown."""


class Appender:
    """Sends batches as one producer, so that a repeated request is appended once."""

    def __init__(self, stream: Stream, seq: str | None, closing: bool) -> None:
        self.appends = self.messages = self.bytes = 0
        self.next_offset: str | None = None
        self.closed = False
        self._stream = stream
        self._seq = seq
        self._closing = closing
        self._id = f"cli-{secrets.token_hex(8)}"

    def send(self, batch: InputBatch) -> None:
        closing = self._closing and batch.last
        self._note(
            self._stream.append(
                batch.body, close=closing, seq=self._seq, producer=self._next_place()
            ),
            closing=closing,
        )
        self.messages += batch.messages
        self.bytes += len(batch.body)

    def finish(self) -> None:
        """Close the stream if the last batch was not known to be the last one."""
        if self._closing and not self.closed:
            self._note(self._stream.close(producer=self._next_place()), closing=True)

    def _next_place(self) -> ProducerPlace:
        from tailrace.client import ProducerPlace

        return ProducerPlace(self._id, epoch=0, seq=self.appends)

    def _note(self, result: AppendResult, *, closing: bool) -> None:
        self.appends += 1
        self.next_offset = result.next_offset or self.next_offset
        self.closed = closing


@click.command()
@click.argument("stream", type=StreamName())
@click.argument("file", type=click.File("rb"), required=False)
@click.option(
    "-m",
    "--message",
    "messages",
    multiple=True,
    metavar="TEXT",
    help="Append this text instead of a file; may be repeated.",
)
@click.option(
    "-l",
    "--lines",
    "by_lines",
    is_flag=True,
    help="Append each line as a message; in a JSON stream each line is a JSON value.",
)
@click.option(
    "--seq", type=HeaderText(), help="Stream-Seq to send; sends everything in one append."
)
@click.option("--close", is_flag=True, help="Close the stream with the last append.")
@click.option(
    "--batch-bytes",
    type=click.IntRange(min=1),
    default=256 << 10,
    show_default=True,
    help="With --lines: maximum number of bytes per append.",
)
@click.option(
    "--batch-lines",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="With --lines: maximum number of lines per append.",
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="How often a failed request is repeated; nothing is appended twice.",
)
@client_command
def append(
    client: CommandClient,
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

    Without --lines the input is one append, or one per MiB unless the stream is JSON.
    """
    from tailrace.log.content import mode

    if file and messages:
        raise click.UsageError("pass a FILE or --message, not both")
    if not file and not messages:
        if sys.stdin.isatty():
            raise click.UsageError("nothing to append; pass a FILE, - for stdin, or --message")
        file = sys.stdin.buffer
    target = client.locate(stream)
    with client.stream(target, f"append to '{target.name}'") as handle:
        kind = mode(handle.content_type)
        appender = Appender(handle, seq, close)
    batches = _read_batches(
        file, messages, kind, by_lines, seq is not None, batch_bytes, batch_lines
    )
    client.repeat(retries)
    quiet = out.as_json or not sys.stderr.isatty()
    started = time.monotonic()
    try:
        with (
            client.reporting(f"append to '{target.name}'", target),
            _progress(file) as bar,
        ):
            for batch in batches:
                if batch.body:
                    appender.send(batch)
                bar.hidden = quiet or time.monotonic() - started < LONG_INPUT
                bar.update(batch.size if bar.length else batch.messages)
            appender.finish()
    except Failure as failure:
        failure.message += _describe_progress(appender)
        raise
    if not appender.appends and not by_lines:
        raise Failure("nothing to append: the input is empty", Exit.USAGE, code="EMPTY_BODY")
    _report(out, target, appender, counts=by_lines or bool(messages))


def _read_batches(
    file: BinaryIO | None,
    messages: tuple[str, ...],
    mode: Mode,
    by_lines: bool,
    at_once: bool,
    batch_bytes: int,
    batch_lines: int,
) -> Iterator[InputBatch]:
    from tailrace.cli import input as source

    if file is None:
        texts = [text.encode(errors="surrogateescape") for text in messages]
        return source.batch_messages(texts, mode, lines=by_lines)
    if not by_lines:
        return source.read_blocks(file, mode, at_once=at_once)
    name = getattr(file, "name", "the input")
    if at_once:
        return source.batch_all_lines(file, mode, name)
    return source.batch_lines(file, mode, name, most_bytes=batch_bytes, most_lines=batch_lines)


def _progress(file: BinaryIO | None) -> Any:
    """A progress bar on stderr: bytes of a file, or messages of a pipe of unknown length."""
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


def _describe_progress(appender: Appender) -> str:
    if not appender.appends:
        return ""
    done = format_count(appender.messages, "message")
    return f"; {done} ({format_count(appender.bytes, 'byte')}) were appended before"


def _report(out: Output, target: StreamAddress, appender: Appender, *, counts: bool) -> None:
    size = format_count(appender.bytes, "byte")
    amount = f"{format_count(appender.messages, 'message')} ({size})" if counts else size
    sentence = f"appended {amount} to {target.name}"
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
