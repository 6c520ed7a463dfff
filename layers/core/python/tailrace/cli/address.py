"""Stream addresses: a path below the server's `/v1/stream/`, or a full URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import click

STREAMS: Final = "/v1/stream/"
LISTING: Final = "/v1/streams"
_UNESCAPED: Final = "!$&'()*+,;=:@~"
"""Characters that a path segment holds unencoded (RFC 3986), as in the paths that servers list."""


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """The name of a stream on the command line, and its URL."""

    name: str
    url: str

    @property
    def origin(self) -> str:
        return parse_origin(self.url)

    @property
    def path(self) -> str:
        """The percent-encoded path of the URL, as in fork headers."""
        return urlsplit(self.url).path


def locate(argument: str, server: str) -> StreamAddress:
    """The stream that an argument names; a full URL is used unchanged."""
    if argument.startswith(("http://", "https://")):
        return StreamAddress(argument, check_url(argument))
    path = argument.lstrip("/")
    if not path or {".", ".."} & set(path.split("/")):
        raise click.BadParameter(f"'{argument}' is not the path of a stream, such as chat/room-1")
    return address_of(encode_path(path), server, path)


def address_of(path: str, server: str, name: str = "") -> StreamAddress:
    """The address of the stream at an encoded path, with a name that `locate` resolves to it: the
    path as people write it, or the URL if that cannot be printed or names another stream."""
    url = server.rstrip("/") + STREAMS + path
    if not name:
        name = unquote(path, errors="surrogateescape")
        name = name if encode_path(name) == path and name.isprintable() else url
    return StreamAddress(name, url)


def encode_path(path: str) -> str:
    return quote(path, safe=f"/{_UNESCAPED}", errors="surrogateescape")


def check_url(url: str) -> str:
    """Return the URL if a request can be sent to it, or raise a usage error."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable():
        raise click.BadParameter(f"'{url}' is not a URL such as http://127.0.0.1:4437")
    return url


def parse_origin(url: str) -> str:
    """Scheme, host and port of a URL, without credentials."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
