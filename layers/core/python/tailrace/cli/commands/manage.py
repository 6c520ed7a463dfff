"""Commands about a stream as a whole: create, info, fork, close, rm."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import click

from tailrace.cli.options import HeaderText, Seconds, client_command
from tailrace.cli.output import Output, table

if TYPE_CHECKING:
    import httpx

    from tailrace.cli.address import Stream
    from tailrace.cli.client import Client


@click.command()
@click.argument("stream")
@click.option(
    "-t",
    "--content-type",
    type=HeaderText(),
    help="Media type of the content; application/json makes a stream of JSON messages."
    "  [default: application/octet-stream]",
)
@click.option("--ttl", type=Seconds(), help="Expire after this long without use: 90, 15m, 12h, 7d.")
@click.option("--expires-at", type=HeaderText(), help="Expire at this time, in RFC 3339.")
@click.option("--closed", is_flag=True, help="Create it closed: --body is all it will ever hold.")
@click.option("--body", type=click.File("rb"), help="File with the first content, - for stdin.")
@client_command
def create(
    client: Client,
    out: Output,
    stream: str,
    content_type: str | None,
    ttl: int | None,
    expires_at: str | None,
    closed: bool,
    body: BinaryIO | None,
) -> None:
    """Create STREAM.

    Doing it again with the same settings changes nothing.
    """
    if ttl is not None and expires_at is not None:
        raise click.UsageError("give --ttl or --expires-at, not both")
    target = client.stream(stream)
    headers = {
        "Content-Type": content_type,
        "Stream-TTL": None if ttl is None else str(ttl),
        "Stream-Expires-At": expires_at,
        "Stream-Closed": "true" if closed else None,
    }
    response = client.send(
        "PUT",
        target,
        doing=f"create '{target.name}'",
        headers={name: value for name, value in headers.items() if value is not None},
        content=body.read() if body else None,
    )
    _created(out, target, response)


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--at", type=HeaderText(), help="Offset to fork at.  [default: the source's end]")
@click.option(
    "--sub-offset",
    type=click.IntRange(min=0),
    help="Messages (JSON) or bytes of the append after that offset to take along.",
)
@client_command
def fork(
    client: Client, out: Output, source: str, target: str, at: str | None, sub_offset: int | None
) -> None:
    """Create TARGET as a fork of SOURCE.

    It begins with the content of SOURCE, shared and not copied, and then goes its own way.
    """
    origin, branch = client.stream(source), client.stream(target)
    if origin.origin != branch.origin:
        raise click.UsageError("a stream and its fork are on the same server")
    headers = {"Stream-Forked-From": origin.path}
    if at is not None:
        headers["Stream-Fork-Offset"] = at
    if sub_offset is not None:
        headers["Stream-Fork-Sub-Offset"] = str(sub_offset)
    response = client.send(
        "PUT",
        branch,
        doing=f"fork '{origin.name}' to '{branch.name}'",
        missing=origin,
        headers=headers,
    )
    _created(out, branch, response)


@click.command()
@click.argument("stream")
@client_command
def info(client: Client, out: Output, stream: str) -> None:
    """Show the metadata of STREAM.

    Its content type, its end, whether it is closed and when it expires.
    """
    target = client.stream(stream)
    response = client.send("HEAD", target, doing=f"look at '{target.name}'")
    fields = metadata(target, response)
    ttl, expires_at = fields["ttl"], fields["expires_at"]
    rows = [
        ("stream", target.name),
        ("url", target.url),
        ("content type", str(fields["content_type"])),
        ("next offset", str(fields["next_offset"])),
        ("state", "closed" if fields["closed"] else "open"),
        ("expires", expiry(ttl, expires_at)),
    ]
    out.result(table(rows), **fields)


@click.command()
@click.argument("stream")
@client_command
def close(client: Client, out: Output, stream: str) -> None:
    """Close STREAM for good.

    Readers see its end, and nothing can be appended any more.
    """
    target = client.stream(stream)
    response = client.send(
        "POST", target, doing=f"close '{target.name}'", headers={"Stream-Closed": "true"}
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
def rm(client: Client, out: Output, stream: str) -> None:
    """Delete STREAM and its content."""
    target = client.stream(stream)
    client.send("DELETE", target, doing=f"delete '{target.name}'")
    out.result(f"deleted {target.name}", stream=target.name, url=target.url, deleted=True)


def metadata(target: Stream, response: httpx.Response) -> dict[str, object]:
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


def expiry(ttl: object, expires_at: object) -> str:
    if ttl is not None:
        return f"after {ttl} s without use"
    return str(expires_at) if expires_at else "never"


def _created(out: Output, target: Stream, response: httpx.Response) -> None:
    new = response.status_code == 201
    fields = metadata(target, response)
    kind = fields["content_type"]
    out.result(
        f"created {target.name} ({kind})"
        if new
        else f"{target.name} is already there with the same settings",
        created=new,
        **fields,
    )
