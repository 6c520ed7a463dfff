"""Memory for the bodies of requests under way: bounded for all clients together."""

from __future__ import annotations

from tailrace.errors import BodyTooLarge, ServerBusy


class Bodies:
    """Counts the bytes of bodies that are in memory."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0

    def take(self, size: int) -> None:
        """Make room for a piece of a body; raises ServerBusy while others have it all."""
        if self.held + size > self._most:
            raise ServerBusy("too many large bodies are under way; try again")
        self.held += size

    def give_back(self, size: int) -> None:
        self.held -= size


def check_length(declared: bytes | None, limit: int) -> None:
    """Refuse a body that is too large before any of it is read."""
    # The parser has checked that it is a number; the length of a number is checked first, since
    # Python takes long for one of thousands of digits.
    if declared is not None and (len(declared) > 20 or int(declared) > limit):
        raise too_large(limit)


def too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"a body has at most {limit} bytes")
