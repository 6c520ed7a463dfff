"""`tailrace read` and `tailrace tail`: print the content of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.options import HeaderText, Output, client_command

if TYPE_CHECKING:
    from tailrace.cli.client import CommandClient


@click.command()
@click.argument("stream")
@click.option(
    "--offset",
    type=HeaderText(),
    default="-1",
    show_default="the beginning",
    help="Start at this offset.",
)
@click.option(
    "--raw", is_flag=True, help="JSON streams: print the arrays as the server sends them."
)
@client_command
def read(client: CommandClient, out: Output, stream: str, offset: str, raw: bool) -> None:
    """Print the content of STREAM.

    Bytes are printed unchanged, a JSON stream as one message per line.
    """
    from tailrace.cli.reading import catch_up, format_chunk

    for chunk in catch_up(client, client.locate(stream), offset):
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
    help="Print the last N messages (JSON) or lines first; finds them by reading the stream from"
    " --offset or the beginning.",
)
@click.option(
    "--raw", is_flag=True, help="JSON streams: print the arrays as the server sends them."
)
@client_command
def tail(
    client: CommandClient, out: Output, stream: str, offset: str | None, last: int | None, raw: bool
) -> None:
    """Follow STREAM and print new data.

    Ends when the stream is closed, and reconnects after a restart of the server.
    """
    from tailrace.cli.reading import catch_up, follow, format_chunk, take_last

    target = client.locate(stream)
    start = offset or ("-1" if last else "now")
    chunks = catch_up(client, target, start)
    for chunk in [take_last(chunks, last)] if last else chunks:
        if start != "now" or out.as_json:
            out.write(format_chunk(chunk, raw=raw, as_json=out.as_json))
    client.retries = None
    for new_chunk in follow(client, target, chunk):
        out.write(format_chunk(new_chunk, raw=raw, as_json=out.as_json))
