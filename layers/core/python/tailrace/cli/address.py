"""Stream addresses: a path below the server's `/v1/stream/`, or a full URL."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

import click

from tailrace.client import urls


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """The name of a stream on the command line, and its URL."""

    name: str
    url: str

    @property
    def origin(self) -> str:
        return urls.parse_origin(self.url)


def locate(argument: str, server: str) -> StreamAddress:
    """The stream that an argument names; a full URL is used unchanged."""
    try:
        url = urls.stream_url(server, argument)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return StreamAddress(argument if urls.is_url(argument) else argument.lstrip("/"), url)


def address_of(path: str, server: str) -> StreamAddress:
    """The address of the stream at an encoded path, with a name that `locate` resolves to it: the
    path as people write it, or the URL if that cannot be printed or names another stream."""
    url = server.rstrip("/") + urls.STREAMS + path
    name = unquote(path, errors="surrogateescape")
    return StreamAddress(
        name if urls.encode_path(name) == path and name.isprintable() else url, url
    )


def check_url(url: str) -> str:
    """Return the URL if a request can be sent to it, or raise a usage error."""
    try:
        return urls.check_url(url)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
