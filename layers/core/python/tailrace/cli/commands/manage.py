"""`tailrace create`, `info`, `fork`, `close` and `rm`: commands for a whole stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import click

from tailrace.cli.options import Duration, HeaderText, Output, client_command, format_table

if TYPE_CHECKING:
    import httpx

    from tailrace.cli.address import StreamAddress
    from tailrace.cli.client import CommandClient


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

    Its content type, next offset, state and expiry.
    """
    target = client.locate(stream)
    response = client.send("HEAD", target, action=f"show '{target.name}'")
    fields = parse_metadata(target, response)
    ttl, expires_at = fields["ttl"], fields["expires_at"]
    rows = [
        ("stream", target.name),
        ("url", target.url),
        ("content type", str(fields["content_type"])),
        ("next offset", str(fields["next_offset"])),
        ("state", "closed" if fields["closed"] else "open"),
        ("expires", format_expiry(ttl, expires_at)),
    ]
    out.result(format_table(rows), **fields)


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
