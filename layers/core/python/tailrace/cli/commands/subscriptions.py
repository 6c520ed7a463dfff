"""`tailrace subscribe` and `tailrace subscriptions`: create, list, show and delete them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from tailrace.cli.address import StreamAddress, address_of
from tailrace.cli.exit_codes import Exit, Failure
from tailrace.cli.options import (
    Duration,
    Output,
    client_command,
    format_count,
    format_table,
    to_json_line,
)

if TYPE_CHECKING:
    from tailrace.cli.client import CommandClient
    from tailrace.client.exchange import HttpAnswer

SUBSCRIPTIONS: Final = "/v1/stream/__ds/subscriptions"
PAGE: Final = 100
HEADINGS: Final = ("SUBSCRIPTION", "TYPE", "WAKES", "PATTERN", "STATUS", "CREATED")


@click.command()
@click.argument("subscription")
@click.option(
    "-p",
    "--pattern",
    metavar="GLOB",
    help="Streams to follow, now and later: * is one segment of a path, ** any number.",
)
@click.option(
    "-s", "--stream", "streams", multiple=True, help="A stream to follow; may be repeated."
)
@click.option("--webhook", metavar="URL", help="Wake by a request to this URL.")
@click.option(
    "--wake-stream",
    metavar="STREAM",
    help="Wake by an event on this stream, which is created if it does not exist.",
)
@click.option(
    "--lease",
    type=Duration(),
    help="How long a worker may be silent before the wake is given to another one: 30, 5m."
    "  [default: 30]",
)
@click.option("--description", metavar="TEXT", help="A text for people.")
@client_command
def subscribe(
    client: CommandClient,
    out: Output,
    subscription: str,
    pattern: str | None,
    streams: tuple[str, ...],
    webhook: str | None,
    wake_stream: str | None,
    lease: int | None,
    description: str | None,
) -> None:
    """Create SUBSCRIPTION, which wakes a worker when one of its streams has news.

    Streams that exist are followed from their end, later ones from their beginning. Creating a
    subscription again with the same settings changes nothing.
    """
    if (webhook is None) == (wake_stream is None):
        raise click.UsageError("pass either --webhook or --wake-stream")
    if pattern is None and not streams:
        raise click.UsageError("name the streams to follow with --pattern or --stream")
    fields = {
        "type": "webhook" if webhook else "pull-wake",
        "pattern": pattern,
        "streams": list(streams) or None,
        "webhook": {"url": webhook} if webhook else None,
        "wake_stream": wake_stream,
        "lease_ttl_ms": None if lease is None else lease * 1000,
        "description": description,
    }
    if wake_stream is not None:
        _create_wake_stream(client, out, client.locate(wake_stream))
    response = client.send(
        "PUT",
        address_of_subscription(client, subscription),
        action=f"create the subscription '{subscription}'",
        headers={"Content-Type": "application/json"},
        content=json.dumps({name: each for name, each in fields.items() if each}).encode(),
    )
    new, created = response.status == 201, parse_object(response, client)
    linked = format_count(len(created.get("streams", ())), "stream")
    out.result(
        f"created {subscription}, which follows {linked}"
        if new
        else f"{subscription} already exists with the same settings",
        created=new,
        **created,
    )


@click.group(subcommand_metavar="list|show|delete [OPTIONS]")
def subscriptions() -> None:
    """List, show or delete subscriptions."""


@subscriptions.command("list")
@client_command
def list_(client: CommandClient, out: Output) -> None:
    """List the subscriptions."""
    found = list_subscriptions(client)
    if out.as_json:
        for each in found:
            out.line(to_json_line(each))
        return
    rows = [_row(each) for each in found]
    if rows:
        out.line(format_table([HEADINGS, *rows], width=out.width, optional=(5, 2, 1)))
    else:
        out.note("no subscriptions; create one with 'tailrace subscribe'")


@subscriptions.command()
@click.argument("subscription")
@client_command
def show(client: CommandClient, out: Output, subscription: str) -> None:
    """Show SUBSCRIPTION.

    Its settings, and how far each of its streams was processed.
    """
    found = get_subscription(client, subscription)
    rows = [
        ("subscription", str(found.get("id"))),
        ("type", str(found.get("type"))),
        ("wakes", _receiver(found)),
        ("pattern", str(found.get("pattern", "-"))),
        ("lease", f"{found.get('lease_ttl_ms', 0) / 1000:g} s"),
        ("status", str(found.get("status"))),
        ("created", str(found.get("created_at"))),
        ("description", str(found.get("description", "-"))),
    ]
    streams = [
        (address_of(each["path"], client.server).name, each["link_type"], each["acked_offset"])
        for each in found.get("streams", ())
    ]
    table = format_table([("STREAM", "LINK", "PROCESSED TO"), *streams]) if streams else ""
    out.result("\n\n".join(filter(None, (format_table(rows), table))), **found)


@subscriptions.command()
@click.argument("subscription")
@client_command
def delete(client: CommandClient, out: Output, subscription: str) -> None:
    """Delete SUBSCRIPTION; its streams stay."""
    get_subscription(client, subscription)
    client.send(
        "DELETE",
        address_of_subscription(client, subscription),
        action=f"delete the subscription '{subscription}'",
    )
    out.result(f"deleted {subscription}", subscription_id=subscription, deleted=True)


def address_of_subscription(
    client: CommandClient, subscription: str, action: str = ""
) -> StreamAddress:
    """The address of a subscription, or of one of its actions."""
    encoded = quote(subscription, safe="", errors="surrogateescape")
    path = "/".join(filter(None, (SUBSCRIPTIONS, encoded, action)))
    # Without a name: it is no stream.
    return StreamAddress("", client.server.rstrip("/") + path)


def get_subscription(client: CommandClient, subscription: str) -> dict[str, Any]:
    response = client.send(
        "GET",
        address_of_subscription(client, subscription),
        action=f"show the subscription '{subscription}'",
    )
    return parse_object(response, client)


def list_subscriptions(client: CommandClient) -> Iterator[dict[str, Any]]:
    listing = StreamAddress("", client.server.rstrip("/") + SUBSCRIPTIONS)
    params = {"limit": str(PAGE)}
    while True:
        response = client.send("GET", listing, action="list the subscriptions", params=params)
        page = parse_object(response, client)
        try:
            yield from page["subscriptions"]
            following = page["next"]
        except (LookupError, TypeError):
            raise Failure(
                f"{listing.url} did not return a list of subscriptions; check --url",
                Exit.UNEXPECTED,
            ) from None
        if following is None or following == params.get("after"):
            return
        params["after"] = following


def parse_object(response: HttpAnswer, client: CommandClient) -> dict[str, Any]:
    try:
        value = json.loads(response.body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Failure(f"{client.server} did not return a JSON object; check --url", Exit.UNEXPECTED)
    return value


def _create_wake_stream(client: CommandClient, out: Output, stream: StreamAddress) -> None:
    """Create the stream of wake events, unless there is one with JSON, of whatever settings."""
    json_type = "application/json"
    with client.stream(stream, f"create '{stream.name}'") as handle:
        try:
            with client.reporting(f"look for '{stream.name}'", stream):
                kind = handle.content_type
        except Failure as failure:
            if failure.exit_code is not Exit.NOT_FOUND:
                raise
            handle.create(content_type=json_type)
            out.note(f"created the wake stream {stream.name}")
            return
    if kind.partition(";")[0].strip().lower() != json_type:
        raise Failure(
            f"'{stream.name}' cannot have wake events: it is a stream of {kind}, not of JSON",
            Exit.CONFLICT,
        )


def _receiver(subscription: dict[str, Any]) -> str:
    webhook = subscription.get("webhook") or {}
    return str(webhook.get("url") or subscription.get("wake_stream"))


def _row(subscription: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(subscription.get("id")),
        str(subscription.get("type")),
        _receiver(subscription),
        str(subscription.get("pattern", "-")),
        str(subscription.get("status")),
        str(subscription.get("created_at", "-")),
    )
