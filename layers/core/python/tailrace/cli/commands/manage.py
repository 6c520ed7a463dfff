"""`tailrace create`, `info`, `ls`, `fork`, `close` and `rm`: commands for whole streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from tailrace.cli.address import StreamAddress, address_of
from tailrace.cli.options import (
    Duration,
    HeaderText,
    Output,
    StreamName,
    client_command,
    format_table,
    to_json_line,
)

if TYPE_CHECKING:
    from tailrace.cli.client import CommandClient
    from tailrace.client import StreamInfo

SORT_KEYS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "name": lambda stream: stream["path"],
    "type": lambda stream: (str(stream["content_type"]), stream["path"]),
    "state": lambda stream: (stream["closed"], stream["path"]),
    "created": lambda stream: (str(stream["created_at"] or ""), stream["path"]),
    "expires": lambda stream: (
        stream["ttl"] is None and not stream["expires_at"],
        stream["ttl"] or 0,
        str(stream["expires_at"] or ""),
        stream["path"],
    ),
}
OPTIONAL: Final = (2, 5, 4, 1)
"""Columns that a narrow terminal does without, in this order."""

HEADINGS: Final = ("STREAM", "TYPE", "NEXT OFFSET", "STATE", "CREATED", "EXPIRES")


@click.command()
@click.argument("stream", type=StreamName())
@click.option(
    "-t",
    "--content-type",
    type=HeaderText(),
    help="Media type of the content; application/json creates a stream of JSON messages."
    "  [default: application/octet-stream]",
)
@click.option(
    "--ttl", type=Duration(), help="Expire after this long without use: 90, 15m, 12h, 7d."
)
@click.option("--expires-at", type=HeaderText(), help="Expire at this time, in RFC 3339.")
@click.option(
    "--closed", is_flag=True, help="Create the stream closed: --body is its entire content."
)
@click.option("--body", type=click.File("rb"), help="File with the initial content, - for stdin.")
@client_command
def create(
    client: CommandClient,
    out: Output,
    stream: str,
    content_type: str | None,
    ttl: int | None,
    expires_at: str | None,
    closed: bool,
    body: BinaryIO | None,
) -> None:
    """Create STREAM.

    Creating a stream again with the same settings changes nothing.
    """
    if ttl is not None and expires_at is not None:
        raise click.UsageError("pass --ttl or --expires-at, not both")
    target = client.locate(stream)
    with client.stream(target, f"create '{target.name}'") as handle:
        result = handle.create(
            content_type=content_type,
            ttl=ttl,
            expires_at=expires_at,
            closed=closed,
            body=body.read() if body else None,
        )
    _report_created(out, target, result.created, result.info)


@click.command()
@click.argument("source", type=StreamName())
@click.argument("target")
@click.option("--at", type=HeaderText(), help="Offset to fork at.  [default: the source's end]")
@click.option(
    "--sub-offset",
    type=click.IntRange(min=0),
    help="Messages (JSON) or bytes of the append after that offset to include.",
)
@client_command
def fork(
    client: CommandClient,
    out: Output,
    source: str,
    target: str,
    at: str | None,
    sub_offset: int | None,
) -> None:
    """Create TARGET as a fork of SOURCE.

    TARGET shares the content of SOURCE up to that offset; later appends are independent.
    """
    origin, branch = client.locate(source), client.locate(target)
    if origin.origin != branch.origin:
        raise click.UsageError("a stream and its fork must be on the same server")
    action = f"fork '{origin.name}' to '{branch.name}'"
    with client.stream(branch, action, missing=origin) as handle:
        result = handle.create(forked_from=origin.url, at=at, sub_offset=sub_offset)
    _report_created(out, branch, result.created, result.info)


@click.command()
@click.argument("stream", type=StreamName())
@client_command
def info(client: CommandClient, out: Output, stream: str) -> None:
    """Show the metadata of STREAM.

    Its content type, offsets, state, last append and expiry.
    """
    target = client.locate(stream)
    with client.stream(target, f"show '{target.name}'") as handle:
        metadata = handle.head()
    fields = {
        **describe(target, metadata),
        "earliest_offset": metadata.earliest_offset,
        "last_written_at": metadata.last_written_at,
    }
    ttl, expires_at = fields["ttl"], fields["expires_at"]
    rows = [
        ("stream", target.name),
        ("url", target.url),
        ("content type", str(fields["content_type"])),
        ("earliest offset", str(fields["earliest_offset"])),
        ("next offset", str(fields["next_offset"])),
        ("last written", str(fields["last_written_at"])),
        ("state", "closed" if fields["closed"] else "open"),
        ("expires", format_expiry(ttl, expires_at)),
    ]
    out.result(format_table(rows), **fields)


@click.command()
@click.argument("prefix", default="", type=StreamName())
@click.option(
    "--sort",
    type=click.Choice(list(SORT_KEYS)),
    default="name",
    show_default=True,
    help="Order of the streams.",
)
@click.option("-r", "--reverse", is_flag=True, help="Reverse the order.")
@client_command
def ls(client: CommandClient, out: Output, prefix: str, sort: str, reverse: bool) -> None:
    """List the streams whose path begins with PREFIX.

    A narrow terminal shows fewer columns; --json has all.
    """
    streams = list_streams(client, prefix)
    if sort != "name" or reverse:
        streams = iter(sorted(streams, key=SORT_KEYS[sort], reverse=reverse))
    if out.as_json:
        for stream in streams:
            out.line(to_json_line(stream))
        return
    rows = [_row(stream) for stream in streams]
    if rows:
        out.line(format_table([HEADINGS, *rows], width=out.width, optional=OPTIONAL))
    else:
        out.note(f"no streams below '{prefix}'" if prefix else "no streams")


@click.command()
@click.argument("stream", type=StreamName())
@client_command
def close(client: CommandClient, out: Output, stream: str) -> None:
    """Close STREAM permanently.

    Readers see its end, and it accepts no more appends.
    """
    target = client.locate(stream)
    with client.stream(target, f"close '{target.name}'") as handle:
        end = handle.close().next_offset
    out.result(
        f"closed {target.name} at {end}",
        stream=target.name,
        url=target.url,
        closed=True,
        next_offset=end,
    )


@click.command()
@click.argument("stream", type=StreamName())
@client_command
def rm(client: CommandClient, out: Output, stream: str) -> None:
    """Delete STREAM and its content."""
    target = client.locate(stream)
    with client.stream(target, f"delete '{target.name}'") as handle:
        handle.delete()
    out.result(f"deleted {target.name}", stream=target.name, url=target.url, deleted=True)


def list_streams(client: CommandClient, prefix: str) -> Iterator[dict[str, Any]]:
    """List the streams page by page, each with the name that other commands accept."""
    with client.listing("list the streams") as server:
        for info in server.list(prefix):
            assert info.path is not None, "a listing has paths"
            address = address_of(info.path, client.server)
            yield {
                "stream": address.name,
                "url": address.url,
                "path": info.path,
                "content_type": info.content_type,
                "next_offset": info.next_offset,
                "closed": info.closed,
                "created_at": info.created_at,
                "ttl": info.ttl,
                "expires_at": info.expires_at,
            }


def describe(target: StreamAddress, info: StreamInfo) -> dict[str, object]:
    return {
        "stream": target.name,
        "url": target.url,
        "content_type": info.content_type,
        "next_offset": info.next_offset,
        "closed": info.closed,
        "ttl": info.ttl,
        "expires_at": info.expires_at,
    }


def format_expiry(ttl: object, expires_at: object) -> str:
    if ttl is not None:
        return f"after {ttl} s without use"
    return str(expires_at) if expires_at else "never"


def _report_created(out: Output, target: StreamAddress, created: bool, info: StreamInfo) -> None:
    out.result(
        f"created {target.name} ({info.content_type})"
        if created
        else f"{target.name} already exists with the same settings",
        created=created,
        **describe(target, info),
    )


def _row(stream: dict[str, Any]) -> tuple[str, ...]:
    return (
        stream["stream"],
        str(stream.get("content_type")),
        str(stream.get("next_offset")),
        "closed" if stream.get("closed") else "open",
        str(stream.get("created_at") or "-"),
        format_expiry(stream.get("ttl"), stream.get("expires_at")),
    )
