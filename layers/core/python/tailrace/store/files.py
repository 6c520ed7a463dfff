"""Files of chains: large bodies, and segments. Each is durable before the row that names it.

A row of a megabyte goes through the log and then through the table, in pages; a file is written
once. A file that no row names was never acknowledged, or is no longer needed, and is swept.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

_OURS = re.compile(r"[0-9]+-[0-9a-f]+-[0-9]+")


class ChainFiles:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._run = secrets.token_hex(8)
        self._numbers = itertools.count()

    def prepare(self) -> None:
        if not self._root.exists():
            self._root.mkdir(exist_ok=True)
            _sync(self._root.parent)

    def write(self, chain: int, n: int, data: bytes) -> str:
        """The name under which data from slot `n` on is durable. No name is used twice."""
        name = f"{n}-{self._run}-{next(self._numbers)}"
        folder = self._root / f"{chain:x}"
        if not folder.exists():
            folder.mkdir(exist_ok=True)
            _sync(self._root)
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        _sync(folder)
        return name

    def read(self, chain: int, name: str) -> bytes:
        return (self._root / f"{chain:x}" / name).read_bytes()

    def read_range(self, chain: int, name: str, begin: int, end: int) -> bytes:
        with (self._root / f"{chain:x}" / name).open("rb") as file:
            file.seek(begin)
            return file.read(end - begin)

    def remove(self, chain: int, name: str) -> None:
        (self._root / f"{chain:x}" / name).unlink(missing_ok=True)

    def remove_all(self, chain: int) -> None:
        shutil.rmtree(self._root / f"{chain:x}", ignore_errors=True)

    def left_behind(self) -> Iterator[tuple[int, int, str]]:
        """Every file that an earlier process wrote, as (chain, slot, name)."""
        for file in self._root.glob("*/*"):
            if _OURS.fullmatch(file.name) and f"-{self._run}-" not in file.name:
                yield int(file.parent.name, 16), int(file.name.partition("-")[0]), file.name


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
