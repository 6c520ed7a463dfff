"""URLs of streams: a path below the server's `/v1/stream/`, or a full URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

STREAMS: Final = "/v1/stream/"
LISTING: Final = "/v1/streams"
_UNESCAPED: Final = "/!$&'()*+,;=:@~"
"""Characters that a path holds unencoded (RFC 3986), as in the paths that servers list."""


def encode_path(path: str) -> str:
    return quote(path, safe=_UNESCAPED, errors="surrogateescape")


def is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def check_url(url: str) -> str:
    """Return the URL if a request can be sent to it; raises ValueError otherwise."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable():
        raise ValueError(f"'{url}' is not a URL such as http://127.0.0.1:4437")
    return url


def stream_url(server: str, name: str) -> str:
    """The URL of the stream that a path, or a full URL, names."""
    if is_url(name):
        return check_url(name)
    path = name.lstrip("/")
    if not path or {".", ".."} & set(path.split("/")):
        raise ValueError(f"'{name}' is not the path of a stream, such as chat/room-1")
    return server.rstrip("/") + STREAMS + encode_path(path)


def add_query(url: str, parameters: Mapping[str, str]) -> str:
    """Add parameters in the order of their names, by which caches recognise a request."""
    if not parameters:
        return url
    query = urlencode(sorted(parameters.items()))
    return f"{url}{'&' if urlsplit(url).query else '?'}{query}"


def url_path(url: str) -> str:
    """The percent-encoded path of a URL, as in fork headers."""
    return urlsplit(url).path


def parse_origin(url: str) -> str:
    """Scheme, host and port of a URL, without credentials."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
