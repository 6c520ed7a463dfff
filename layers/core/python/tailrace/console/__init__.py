"""The console at `/`: files that `make console` builds from the folder `console`."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    b" require-trusted-types-for 'script'"
)
"""The Content-Security-Policy of the console: no request to anywhere else, no inline code."""

INDEX: Final = "index.html"
ASSETS: Final = "console"
"""Folder of all other files. Their names have a digest of their contents."""

REVALIDATED: Final = "no-cache"
IMMUTABLE: Final = "public, max-age=31536000, immutable"

KINDS: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
"""The content type by the ending of a name."""

BROTLI_QUALITY: Final = 9
"""The highest takes a fifth of a second, and saves 2 KB."""


class File(NamedTuple):
    """A file of the console."""

    body: bytes
    kind: str
    cache_control: str
    etag: str

    def encoded(self, accepted: str) -> tuple[bytes, str]:
        """Return the body in the best of the accepted encodings, and its name; empty: as it is."""
        names = {each.partition(";")[0].strip() for each in accepted.split(",")}
        if "br" in names and (body := _brotli(self.body)) is not None:
            return body, "br"
        if "gzip" in names:
            return _gzip(self.body), "gzip"
        return self.body, ""


@cache
def read(name: str) -> File | None:
    """Read a file when it is first asked for; None: there is none of that name."""
    kind = KINDS.get(name.rpartition(".")[2])
    path = files("tailrace.console").joinpath("built", *name.split("/"))
    if kind is None or name not in names():
        return None
    body = path.read_bytes()
    cache_control = REVALIDATED if name == INDEX else IMMUTABLE
    return File(body, kind, cache_control, f'"{hashlib.sha256(body).hexdigest()[:16]}"')


@cache
def names() -> frozenset[str]:
    """The names of all files."""
    assets = files("tailrace.console").joinpath("built", ASSETS)
    return frozenset([INDEX, *(f"{ASSETS}/{each.name}" for each in assets.iterdir())])


@cache
def _brotli(body: bytes) -> bytes | None:
    try:
        import brotli
    except ModuleNotFoundError:
        return None
    compressed: bytes = brotli.compress(body, quality=BROTLI_QUALITY)
    return compressed


@cache
def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)
