"""The streams that this process remembers, those used last the longest."""

from __future__ import annotations

from collections import OrderedDict

from tailrace.store.dynamodb.chain import UNKNOWN, Chain


class Memory:
    def __init__(self, size: int) -> None:
        self._size = size
        self._chains: OrderedDict[str, Chain] = OrderedDict()

    def get(self, path: str) -> Chain | None:
        chain = self._chains.get(path)
        if chain is not None:
            self._chains.move_to_end(path)
        return chain

    def keep(self, chain: Chain) -> Chain:
        """Remember a chain; of two for the same incarnation, the one that is known already."""
        path = chain.stream.path
        known = self._chains.get(path)
        if known is not None and known is not chain:
            if known.stream.id == chain.stream.id:
                known.merge(chain)
                return known
            self.forget(known)
        self._chains[path] = chain
        self._chains.move_to_end(path)
        while len(self._chains) > self._size:
            oldest = next(iter(self._chains.values()))
            if oldest.watched or oldest is chain:
                break
            self.forget(oldest)
        return chain

    def forget(self, chain: Chain) -> None:
        if self._chains.get(chain.stream.path) is chain:
            del self._chains[chain.stream.path]
        chain.wake(everybody=True)

    def distrust(self) -> None:
        """Whoever writes next asks for the tail first."""
        for chain in self._chains.values():
            chain.known = UNKNOWN

    def wake(self) -> None:
        for chain in self._chains.values():
            chain.wake(everybody=True)
