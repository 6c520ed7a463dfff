"""Where a stream is: a path below the server's `/v1/stream/`, or a full URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import click

STREAMS: Final = "/v1/stream/"
LISTING: Final = "/v1/streams"
_UNESCAPED: Final = "!$&'()*+,;=:@~"
"""What a path segment may hold as it is (RFC 3986): also how servers list their paths."""


@dataclass(frozen=True, slots=True)
class Stream:
    name: str
    url: str

    @property
    def origin(self) -> str:
        return origin(self.url)

    @property
    def path(self) -> str:
        """The percent-encoded path component of the URL, as fork headers want it."""
        return urlsplit(self.url).path


def locate(given: str, server: str) -> Stream:
    """The stream that a command names; a full URL is taken as it is."""
    if given.startswith(("http://", "https://")):
        return Stream(given, checked(given))
    path = given.lstrip("/")
    if not path or {".", ".."} & set(path.split("/")):
        raise click.BadParameter(f"'{given}' is not the path of a stream, such as chat/room-1")
    return at(encoded(path), server, path)


def at(path: str, server: str, name: str = "") -> Stream:
    """The stream at an encoded path; named such that naming it so finds it again."""
    url = server.rstrip("/") + STREAMS + path
    if not name:
        name = unquote(path, errors="surrogateescape")
        name = name if encoded(name) == path else url
    return Stream(name, url)


def encoded(path: str) -> str:
    return quote(path, safe=f"/{_UNESCAPED}", errors="surrogateescape")


def checked(url: str) -> str:
    """A URL that a request can be sent to, or a usage error."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable():
        raise click.BadParameter(f"'{url}' is not a URL such as http://127.0.0.1:4437")
    return url


def origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
