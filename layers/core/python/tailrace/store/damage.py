"""Damage to what is stored, as reads find it."""

from __future__ import annotations

import logging

from tailrace.errors import DamagedData
from tailrace.limits import DAMAGED_OBJECTS

logger = logging.getLogger("tailrace")


class Damage:
    """Files or objects that were found damaged: each is logged once."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def __len__(self) -> int:
        return len(self._names)

    def note(self, error: DamagedData) -> None:
        if error.name not in self._names and len(self._names) < DAMAGED_OBJECTS:
            self._names.add(error.name)
            logger.error("%s", error)
