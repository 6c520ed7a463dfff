"""`tailrace ls`: the streams of a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from tailrace.cli.address import LISTING, StreamAddress, address_of, encode_path
from tailrace.cli.commands.manage import format_expiry
from tailrace.cli.failures import Exit, Failure
from tailrace.cli.options import Output, client_command, format_table, to_json_line

if TYPE_CHECKING:
    from tailrace.cli.client import CommandClient

PAGE: Final = 1000
HEADINGS: Final = ("STREAM", "TYPE", "NEXT OFFSET", "STATE", "CREATED", "EXPIRES")


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


def _row(stream: dict[str, Any]) -> tuple[str, ...]:
    return (
        stream["stream"],
        str(stream.get("content_type")),
        str(stream.get("next_offset")),
        "closed" if stream.get("closed") else "open",
        str(stream.get("created_at") or "-"),
        format_expiry(stream.get("ttl"), stream.get("expires_at")),
    )
