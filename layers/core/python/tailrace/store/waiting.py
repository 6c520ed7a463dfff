"""How a wait ends, in either store."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from tailrace.errors import StoreUnavailable

T = TypeVar("T")


def resolve(future: asyncio.Future[T], result: T, error: StoreUnavailable | None = None) -> None:
    """End a wait, unless its caller was cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
