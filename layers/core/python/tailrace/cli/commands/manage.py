"""`tailrace create`, `info`, `ls`, `fork`, `close` and `rm`: commands for whole streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from tailrace.cli.address import LISTING, StreamAddress, address_of, encode_path
from tailrace.cli.exit_codes import Exit, Failure
from tailrace.cli.options import (
    Duration,
    HeaderText,
    Output,
    client_command,
    format_table,
    to_json_line,
)

if TYPE_CHECKING:
    import httpx

    from tailrace.cli.client import CommandClient

PAGE: Final = 1000
HEADINGS: Final = ("STREAM", "TYPE", "NEXT OFFSET", "STATE", "CREATED", "EXPIRES")


@click.command()
@click.argument("stream")
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
    headers = {
        "Content-Type": content_type,
        "Stream-TTL": None if ttl is None else str(ttl),
        "Stream-Expires-At": expires_at,
        "Stream-Closed": "true" if closed else None,
    }
    response = client.send(
        "PUT",
        target,
        action=f"create '{target.name}'",
        headers={name: value for name, value in headers.items() if value is not None},
        content=body.read() if body else None,
    )
    _report_created(out, target, response)


@click.command()
@click.argument("source")
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
    headers = {"Stream-Forked-From": origin.path}
    if at is not None:
        headers["Stream-Fork-Offset"] = at
    if sub_offset is not None:
        headers["Stream-Fork-Sub-Offset"] = str(sub_offset)
    response = client.send(
        "PUT",
        branch,
        action=f"fork '{origin.name}' to '{branch.name}'",
        missing=origin,
        headers=headers,
    )
    _report_created(out, branch, response)


@click.command()
@click.argument("stream")
@client_command
def info(client: CommandClient, out: Output, stream: str) -> None:
    """Show the metadata of STREAM.

    Its content type, offsets, state, last append and expiry.
    """
    target = client.locate(stream)
    response = client.send("HEAD", target, action=f"show '{target.name}'")
    fields = {
        **parse_metadata(target, response),
        "earliest_offset": response.headers.get("Stream-Earliest-Offset"),
        "last_written_at": response.headers.get("Stream-Last-Written-At"),
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
@click.argument("prefix", default="")
@client_command
def ls(client: CommandClient, out: Output, prefix: str) -> None:
    """List the streams whose path begins with PREFIX."""
    if out.as_json:
        for stream in list_streams(client, prefix):
            out.line(to_json_line(stream))
        return
    rows = [_row(stream) for stream in list_streams(client, prefix)]
    if rows:
        out.line(format_table([HEADINGS, *rows]))
    else:
        out.note(f"no streams below '{prefix}'" if prefix else "no streams")


@click.command()
@click.argument("stream")
@client_command
def close(client: CommandClient, out: Output, stream: str) -> None:
    """Close STREAM permanently.

    Readers see its end, and it accepts no more appends.
    """
    target = client.locate(stream)
    response = client.send(
        "POST", target, action=f"close '{target.name}'", headers={"Stream-Closed": "true"}
    )
    end = response.headers.get("Stream-Next-Offset")
    out.result(
        f"closed {target.name} at {end}",
        stream=target.name,
        url=target.url,
        closed=True,
        next_offset=end,
    )


@click.command()
@click.argument("stream")
@client_command
def rm(client: CommandClient, out: Output, stream: str) -> None:
    """Delete STREAM and its content."""
    target = client.locate(stream)
    client.send("DELETE", target, action=f"delete '{target.name}'")
    out.result(f"deleted {target.name}", stream=target.name, url=target.url, deleted=True)


def list_streams(client: CommandClient, prefix: str) -> Iterator[dict[str, Any]]:
    """List the streams page by page, each with the name that other commands accept."""
    listing = StreamAddress("", client.server.rstrip("/") + LISTING)
    params = {"limit": str(PAGE), "prefix": encode_path(prefix.lstrip("/"))}
    while True:
        response = client.send("GET", listing, action="list the streams", params=params)
        try:
            page = response.json()
            for item in page["streams"]:
                address = address_of(item["path"], client.server)
                yield {"stream": address.name, "url": address.url, **item}
            following = page["next"]
        except (ValueError, LookupError, TypeError):
            raise Failure(
                f"{listing.url} did not return a list of streams; check --url", Exit.UNEXPECTED
            ) from None
        if following is None or following == params.get("after"):
            return
        params["after"] = following


def parse_metadata(target: StreamAddress, response: httpx.Response) -> dict[str, object]:
    headers = response.headers
    ttl = headers.get("Stream-TTL", "")
    return {
        "stream": target.name,
        "url": target.url,
        "content_type": headers.get("Content-Type"),
        "next_offset": headers.get("Stream-Next-Offset"),
        "closed": headers.get("Stream-Closed", "").lower() == "true",
        "ttl": int(ttl) if ttl.isdigit() else None,
        "expires_at": headers.get("Stream-Expires-At"),
    }


def format_expiry(ttl: object, expires_at: object) -> str:
    if ttl is not None:
        return f"after {ttl} s without use"
    return str(expires_at) if expires_at else "never"


def _report_created(out: Output, target: StreamAddress, response: httpx.Response) -> None:
    new = response.status_code == 201
    fields = parse_metadata(target, response)
    kind = fields["content_type"]
    out.result(
        f"created {target.name} ({kind})"
        if new
        else f"{target.name} already exists with the same settings",
        created=new,
        **fields,
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
