"""Runs a step of a test in the middle of another operation."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

Step = Callable[[], Coroutine[Any, Any, None]]


async def nothing() -> None:
    pass


def once(
    patch: pytest.MonkeyPatch, owner: type, name: str, before: Step = nothing, after: Step = nothing
) -> None:
    """Run a step before or after the next call of a method."""
    method = getattr(owner, name)
    due = True

    async def hooked(self: Any, *args: Any, **more: Any) -> Any:
        nonlocal due
        if not due:
            return await method(self, *args, **more)
        due = False
        await before()
        result = await method(self, *args, **more)
        await after()
        return result

    patch.setattr(owner, name, hooked)
