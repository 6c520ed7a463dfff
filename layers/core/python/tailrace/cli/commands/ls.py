"""`tailrace ls`: the streams of a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from tailrace.cli.address import LISTING, Stream, at, encoded
from tailrace.cli.commands.manage import expiry
from tailrace.cli.failures import Exit, Failure
from tailrace.cli.options import client_command
from tailrace.cli.output import Output, as_line, table

if TYPE_CHECKING:
    from tailrace.cli.client import Client

PAGE: Final = 1000
HEADINGS: Final = ("STREAM", "TYPE", "NEXT OFFSET", "STATE", "CREATED", "EXPIRES")


@click.command()
@click.argument("prefix", default="")
@client_command
def ls(client: Client, out: Output, prefix: str) -> None:
    """List the streams whose path begins with PREFIX."""
    if out.as_json:
        for stream in streams(client, prefix):
            out.line(as_line(stream))
        return
    rows = [_row(stream) for stream in streams(client, prefix)]
    if rows:
        out.line(table([HEADINGS, *rows]))
    else:
        out.note(f"no streams below '{prefix}'" if prefix else "no streams")


def streams(client: Client, prefix: str) -> Iterator[dict[str, Any]]:
    """What the server lists, each with the name that the other commands take."""
    listing = Stream("", client.server.rstrip("/") + LISTING)
    params = {"limit": str(PAGE), "prefix": encoded(prefix.lstrip("/"))}
    while True:
        response = client.send("GET", listing, doing="list the streams", params=params)
        try:
            page = response.json()
            for listed in page["streams"]:
                found = at(listed["path"], client.server)
                yield {"stream": found.name, "url": found.url, **listed}
            following = page["next"]
        except (ValueError, LookupError, TypeError):
            raise Failure(
                f"{listing.url} did not answer with a list of streams", Exit.UNEXPECTED
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
        expiry(stream.get("ttl"), stream.get("expires_at")),
    )
