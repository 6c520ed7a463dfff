"""Files of chains: large bodies, and segments. Each is durable before the row that names it.

A row of a megabyte goes through the log and then through the table, in pages; a file is written
once. A file that no row names was never acknowledged, or is no longer needed: see `orphans`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tailrace.errors import DamagedData

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700

_CHAIN = re.compile(r"[0-9a-f]{1,15}|[0-7][0-9a-f]{15}")
_OURS = re.compile(r"[0-9]{1,18}-[0-9a-f]+-[0-9]+(?:-([0-9a-f]{8}))?")


class ChainFiles:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._run = secrets.token_hex(8)
        self._numbers = itertools.count()

    def prepare(self) -> None:
        if not self.root.exists():
            self.root.mkdir(PRIVATE_FOLDER, exist_ok=True)
            sync_folder(self.root.parent)

    def path(self, chain: int, name: str) -> Path:
        return self.root / f"{chain:x}" / name

    def write(self, chain: int, slot: int, data: bytes) -> str:
        """Write data from `slot` on durably; returns the name of its file.

        No name is used twice. It ends with the checksum of the data."""
        checksum = zlib.crc32(data)
        path = self.path(chain, f"{slot}-{self._run}-{next(self._numbers)}-{checksum:08x}")
        if not path.parent.exists():
            path.parent.mkdir(PRIVATE_FOLDER, exist_ok=True)
            sync_folder(self.root)
        write_new(path, data)
        return path.name

    def read(self, chain: int, name: str) -> bytes:
        """Read a file; `DamagedData` when it is not as it was written."""
        data = self.path(chain, name).read_bytes()
        match = _OURS.fullmatch(name)
        # Files of earlier versions have no checksum.
        if match and match[1] and zlib.crc32(data) != int(match[1], 16):
            named = f"{self.root.name}/{chain:x}/{name}"
            raise DamagedData(named, f"the file {named} has another checksum than when written")
        return data

    def read_range(self, chain: int, name: str, begin: int, end: int) -> bytes:
        with self.path(chain, name).open("rb") as file:
            file.seek(begin)
            return file.read(end - begin)

    def remove(self, chain: int, name: str) -> None:
        self.path(chain, name).unlink(missing_ok=True)

    def remove_all(self, chain: int) -> None:
        shutil.rmtree(self.root / f"{chain:x}", ignore_errors=True)

    def is_empty(self) -> bool:
        return next(self.chains(), None) is None

    def chains(self) -> Iterator[int]:
        """Every chain that has files."""
        for folder in self._folders():
            if any(_OURS.fullmatch(file.name) for file in folder.iterdir()):
                yield int(folder.name, 16)

    def left_behind(self) -> Iterator[tuple[int, int, str]]:
        """Every file that an earlier process wrote, as (chain, slot, name)."""
        for folder in self._folders():
            for file in folder.iterdir():
                if _OURS.fullmatch(file.name) and f"-{self._run}-" not in file.name:
                    yield int(folder.name, 16), int(file.name.partition("-")[0]), file.name

    def _folders(self) -> Iterator[Path]:
        """Folders of chains; a volume may have others, such as `lost+found`."""
        if self.root.exists():
            for folder in self.root.iterdir():
                if _CHAIN.fullmatch(folder.name) and folder.is_dir():
                    yield folder


def write_new(path: Path, data: bytes) -> None:
    """Write a file durably, for its owner only; one that cannot be completed is removed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        # A full disk would otherwise be filled by the pieces of what did not fit.
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
