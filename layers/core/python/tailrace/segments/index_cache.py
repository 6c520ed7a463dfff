"""The indexes of segments that were used last, up to a number of slots; any thread may ask."""

from __future__ import annotations

import threading
from collections import OrderedDict

from tailrace.segments.format import Index


class Indexes:
    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._kept = 0
        self._indexes: OrderedDict[str, Index] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Index | None:
        with self._lock:
            index = self._indexes.get(key)
            if index is not None:
                self._indexes.move_to_end(key)
            return index

    def keep(self, key: str, index: Index) -> None:
        """The latest one is always kept, however large it is."""
        with self._lock:
            if key in self._indexes:
                return
            self._indexes[key] = index
            self._kept += index.stop - index.first
            while self._kept > self._slots and len(self._indexes) > 1:
                _, oldest = self._indexes.popitem(last=False)
                self._kept -= oldest.stop - oldest.first
