"""`tailrace read` and `tailrace tail`: a stream's content on stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.options import HeaderText, client_command
from tailrace.cli.output import Output

if TYPE_CHECKING:
    from tailrace.cli.client import Client


@click.command()
@click.argument("stream")
@click.option(
    "--offset",
    type=HeaderText(),
    default="-1",
    show_default="the beginning",
    help="Read from this offset on.",
)
@click.option("--raw", is_flag=True, help="JSON streams: the arrays as the server sends them.")
@client_command
def read(client: Client, out: Output, stream: str, offset: str, raw: bool) -> None:
    """Print the content of STREAM.

    Bytes come as they are, a JSON stream comes as one message per line.
    """
    from tailrace.cli.reading import catch_up, printed

    for chunk in catch_up(client, client.stream(stream), offset):
        out.write(printed(chunk, raw=raw, as_json=out.as_json))


@click.command()
@click.argument("stream")
@click.option(
    "--offset",
    type=HeaderText(),
    help="Start here: an offset, -1 for the beginning, now for the end.  [default: now]",
)
@click.option(
    "-n",
    "--last",
    type=click.IntRange(min=1),
    metavar="N",
    help="First print the last N messages (JSON) or lines; reads the stream from --offset or the"
    " beginning to find them.",
)
@click.option("--raw", is_flag=True, help="JSON streams: the arrays as the server sends them.")
@client_command
def tail(
    client: Client, out: Output, stream: str, offset: str | None, last: int | None, raw: bool
) -> None:
    """Follow STREAM and print what is appended.

    Ends when the stream is closed; survives a restart of the server.
    """
    from tailrace.cli.reading import catch_up, follow, newest, printed

    target = client.stream(stream)
    start = offset or ("-1" if last else "now")
    chunks = catch_up(client, target, start)
    for reached in [newest(chunks, last)] if last else chunks:
        if start != "now" or out.as_json:
            out.write(printed(reached, raw=raw, as_json=out.as_json))
    client.retries = None
    for chunk in follow(client, target, reached):
        out.write(printed(chunk, raw=raw, as_json=out.as_json))
