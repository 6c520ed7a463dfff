"""The file of the data directory with the secrets from which the keys of subscriptions are derived.

It is created once, for its owner only, and read again when it changes, so that a rotation needs no
restart. A new secret signs after `ACTIVATION_MS`, and verifies for `PUBLISHED_MS` after the next
one signs.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import stat
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from tailrace.errors import KeysUnavailable, UnreadableData
from tailrace.limits import WAKE_TOKEN_SECONDS
from tailrace.protocols.subscriptions.signing import SigningKey, SigningKeys
from tailrace.store.sqlite.directory import KEYS
from tailrace.store.sqlite.files import PRIVATE_FOLDER, sync_folder, write_new

ACTIVATION_MS: Final = 15 * 60_000
"""How long a new key is published before it signs: receivers keep the published keys for five
minutes, and functions the secret for another five."""

PUBLISHED_MS: Final = (WAKE_TOKEN_SECONDS + 3600) * 1000
"""How long a key is kept after it signed: signatures are checked within minutes, but the tokens of
wakes last longer."""

RELOAD_MS: Final = 10_000
"""Interval at which the file is looked at: a rotation has time."""

SECRET_BYTES: Final = 32

logger = logging.getLogger("tailrace")


class StoredSecret(NamedTuple):
    secret: str
    signs_from: int
    """Milliseconds."""


class KeyFile:
    """The keys in a file, which is created when it is first needed."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / KEYS
        self._secrets: list[StoredSecret] = []
        self._identity: tuple[int, ...] = ()
        self._looked_at: int | None = None
        self._is_readable = False
        self._keys: tuple[list[StoredSecret], SigningKeys] | None = None

    async def get(self, now: int) -> SigningKeys:
        """The keys at a time in milliseconds; raise `KeysUnavailable`."""
        if self._looked_at is None or abs(now - self._looked_at) >= RELOAD_MS:
            self._looked_at, self._is_readable = now, False
            try:
                self._reload(now)
                self._is_readable = True
            except UnreadableData as error:
                # Its message names the file, which is no business of clients.
                logger.error("%s", error)
        if not self._is_readable:
            raise KeysUnavailable("the keys of subscriptions cannot be read; the log says why")
        current, *others = select_secrets(self._secrets, now)
        if self._keys is None or self._keys[0] != [current, *others]:
            keys = [SigningKey(each.secret.encode()) for each in (current, *others)]
            self._keys = ([current, *others], SigningKeys(keys[0], keys[1:]))
        return self._keys[1]

    def exists(self) -> bool:
        return self._path.exists()

    def read(self) -> list[StoredSecret]:
        """Read all secrets, the newest last; raise `UnreadableData`."""
        with _readable(self._path):
            return _read(self._path)

    def create(self, now: int) -> None:
        """Create the file unless it exists."""
        self._path.parent.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        if not self._path.exists():
            # Linked, not renamed: of two processes that create it one wins, and both use that one.
            with (
                _written(self._path, [_generate(now)]) as new,
                contextlib.suppress(FileExistsError),
            ):
                os.link(new, self._path)
            sync_folder(self._path.parent)

    def rotate(self, now: int, *, revoke: bool) -> list[StoredSecret]:
        """Add a secret and drop those that are no longer needed; returns the new content.

        `revoke`: the others were disclosed. They are dropped at once, and the new one signs."""
        with _readable(self._path):
            self.create(now)
            return self._replace(now, revoke=revoke)

    def _replace(self, now: int, *, revoke: bool) -> list[StoredSecret]:
        with self._locked():
            stored = _read(self._path)
            if revoke:
                kept = [_generate(now)]
            else:
                needed = select_secrets(stored, now)
                kept = [each for each in stored if each in needed]
                kept.append(_generate(max(now + ACTIVATION_MS, kept[-1].signs_from)))
            with _written(self._path, kept) as new:
                new.replace(self._path)
            sync_folder(self._path.parent)
        return kept

    def _reload(self, now: int) -> None:
        with _readable(self._path):
            self.create(now)
            status = self._path.stat()
            identity = (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)
            if identity != self._identity:
                self._secrets = _read(self._path)
                self._identity = identity

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other rotations: each replaces the file, so the lock is that of its folder."""
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def select_secrets(stored: list[StoredSecret], now: int) -> list[StoredSecret]:
    """The secrets to use at a time; the first one signs."""
    # The first one signs even before its time: a clock may be set back.
    current = max((n for n, each in enumerate(stored) if each.signs_from <= now), default=0)
    needed = [
        each
        for each, successor in pairwise(stored)
        if now < successor.signs_from + PUBLISHED_MS and each is not stored[current]
    ]
    newest = [] if stored[-1] is stored[current] else [stored[-1]]
    return [stored[current], *needed, *newest]


def _generate(signs_from: int) -> StoredSecret:
    return StoredSecret(secrets.token_urlsafe(SECRET_BYTES), signs_from)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Report that a file or its folder cannot be used as `UnreadableData`."""
    try:
        yield
    except OSError as error:
        raise UnreadableData(
            f"cannot use the keys of subscriptions in {path}: {error.strerror}"
        ) from error


def _read(path: Path) -> list[StoredSecret]:
    with path.open("rb") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise UnreadableData(
                f"{path} has secrets, but other users may read it: make it private (chmod 600), and"
                " rotate the keys if somebody may have read it (tailrace keys rotate --revoke)"
            )
        content = file.read()
    try:
        stored = [_parse(each) for each in orjson.loads(content)["keys"]]
    except (ValueError, TypeError, KeyError):
        stored = []
    if not stored or sorted(stored, key=lambda each: each.signs_from) != stored:
        raise UnreadableData(
            f"{path} does not contain keys: restore it, or remove it if its keys may be replaced"
        )
    return stored


def _parse(item: dict[str, Any]) -> StoredSecret:
    secret, signs_from = item["secret"], item["signs_from"]
    if not (
        isinstance(secret, str) and isinstance(signs_from, int) and len(secret) >= SECRET_BYTES
    ):
        raise ValueError(item)
    return StoredSecret(secret, signs_from)


@contextlib.contextmanager
def _written(path: Path, stored: list[StoredSecret]) -> Iterator[Path]:
    """Write a durable file for its owner only, which is removed unless it gets another name."""
    new = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    content = orjson.dumps(
        {"keys": [each._asdict() for each in stored]}, option=orjson.OPT_INDENT_2
    )
    try:
        write_new(new, content)
        yield new
    finally:
        new.unlink(missing_ok=True)
