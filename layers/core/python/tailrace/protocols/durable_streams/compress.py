"""Response bodies in the encoding that the client likes best."""

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
"""Larger bodies are compressed in a thread, so that they do not hold up everybody else."""

CACHE_BYTES: Final = 16 << 20
"""Memory for compressed bodies: many readers ask for the same chunk."""


def _zstd(body: bytes) -> bytes:
    # Imported when wanted: a Lambda function leaves compression to the edge and has neither.
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
"""In the order in which we choose among what a client likes equally."""

_COMPRESSED_ALREADY = re.compile(
    r"(?:image/(?!svg)|video/|audio/|font/woff|application/(?:zip|gzip|zstd|x-7z|pdf))"
)


@lru_cache(maxsize=256)
def choose(accept_encoding: str) -> str:
    """The encoding for a client, or the empty string."""
    weights: dict[str, float] = {}
    for part in accept_encoding.lower().split(","):
        name, _, parameters = part.partition(";")
        weights[name.strip()] = _weight(parameters)
    rest = weights.get("*", 0.0)
    best = max(_ENCODERS, key=lambda name: weights.get(name, rest))
    weight = weights.get(best, rest)
    return best if weight > 0 and weight >= weights.get("identity", 0.0) else ""


def worth_it(content_type: str) -> bool:
    return not _COMPRESSED_ALREADY.match(content_type.lower())


class Compressor:
    def __init__(self) -> None:
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._used = 0

    async def compress(self, body: bytes, encoding: str, tag: str) -> bytes:
        """The body in an encoding; `tag` names exactly these bytes in it."""
        found = self._cache.get(tag)
        if found is not None:
            self._cache.move_to_end(tag)
            return found
        encode = _ENCODERS[encoding]
        if len(body) < THREAD_BYTES:
            return encode(body)
        encoded = await asyncio.to_thread(encode, body)
        self._remember(tag, encoded)
        return encoded

    def _remember(self, tag: str, encoded: bytes) -> None:
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
