"""Compression of response bodies by the encoding that the client prefers."""

from __future__ import annotations

import asyncio
import gzip
import re
import zlib
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Final

THREAD_BYTES: Final = 32 << 10
"""Larger bodies are compressed in a thread, or they would block all other requests."""

CACHE_BYTES: Final = 16 << 20
"""Memory for compressed bodies: many readers request the same chunk."""


def _zstd(body: bytes) -> bytes:
    # Imported on first use: on Lambda, where the edge compresses, neither package is installed.
    import zstandard

    return zstandard.ZstdCompressor(level=3).compress(body)


def _br(body: bytes) -> bytes:
    import brotli

    return bytes(brotli.compress(body, quality=4))


_ENCODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "zstd": _zstd,
    "br": _br,
    "gzip": lambda body: gzip.compress(body, compresslevel=5, mtime=0),
    "deflate": lambda body: zlib.compress(body, level=5),
}
"""In our order of preference, for encodings that a client accepts equally."""

_ALREADY_COMPRESSED = re.compile(
    r"(?:image/(?!svg)|video/|audio/|font/woff|application/(?:zip|gzip|zstd|x-7z|pdf))"
)


@lru_cache(maxsize=256)
def choose_encoding(accept_encoding: str) -> str:
    """Choose the encoding for a client; empty: none."""
    weights: dict[str, float] = {}
    for part in accept_encoding.lower().split(","):
        name, _, parameters = part.partition(";")
        weights[name.strip()] = _weight(parameters)
    rest = weights.get("*", 0.0)
    best = max(_ENCODERS, key=lambda name: weights.get(name, rest))
    weight = weights.get(best, rest)
    return best if weight > 0 and weight >= weights.get("identity", 0.0) else ""


def is_compressible(content_type: str) -> bool:
    return not _ALREADY_COMPRESSED.match(content_type.lower())


class Compressor:
    def __init__(self) -> None:
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._used = 0

    async def compress(self, body: bytes, encoding: str, tag: str) -> bytes:
        """Compress a body whose ETag in this encoding is `tag`."""
        cached = self._cache.get(tag)
        if cached is not None:
            self._cache.move_to_end(tag)
            return cached
        encode = _ENCODERS[encoding]
        if len(body) < THREAD_BYTES:
            return encode(body)
        encoded = await asyncio.to_thread(encode, body)
        self._add_to_cache(tag, encoded)
        return encoded

    def _add_to_cache(self, tag: str, encoded: bytes) -> None:
        if tag in self._cache or len(encoded) > CACHE_BYTES // 4:
            return
        self._cache[tag] = encoded
        self._used += len(encoded)
        while self._used > CACHE_BYTES:
            self._used -= len(self._cache.popitem(last=False)[1])


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
