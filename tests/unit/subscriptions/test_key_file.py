"""The file of keys: made once, private, and rotated without a gap."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from tailrace.errors import KeysUnavailable, TokenExpired, UnreadableData
from tailrace.limits import WAKE_TOKEN_SECONDS
from tailrace.protocols.subscriptions.key_file import (
    ACTIVATION_MS,
    PUBLISHED_MS,
    RELOAD_MS,
    KeyFile,
    StoredSecret,
    select_secrets,
)
from tailrace.protocols.subscriptions.signing import KeySigner, SigningKeys
from tailrace.store.sqlite.directory import DataDirectory

NOW = 1_800_000_000_000
LONG = b"0123456789" * 4


def keys(directory: Path, now: int = NOW) -> SigningKeys:
    """The keys that a server which starts now has."""
    return asyncio.run(KeyFile(directory).get(now))


def published(found: SigningKeys) -> set[str]:
    return {key["kid"] for key in found.jwks()["keys"]}


def test_keys_are_made_once_for_their_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    kid = keys(directory).kid
    (file,) = directory.iterdir()
    assert file.name == "tailrace.keys"
    assert file.stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    assert keys(directory).kid == kid


def test_servers_that_start_at_once_have_the_same_keys(tmp_path: Path) -> None:
    barrier, found = threading.Barrier(8), []

    def start() -> None:
        barrier.wait()
        found.append(keys(tmp_path).kid)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o644, 0o777])
def test_keys_that_others_can_read_are_refused(tmp_path: Path, mode: int) -> None:
    keys(tmp_path)
    file = tmp_path / "tailrace.keys"
    file.chmod(mode)
    with pytest.raises(UnreadableData, match="--revoke"):
        KeyFile(tmp_path).read()
    with pytest.raises(KeysUnavailable):
        keys(tmp_path)
    # The start of a server makes other files private, but does not hide that these were not.
    lock, database = DataDirectory(tmp_path).open()
    database.close()
    lock.close()
    assert file.stat().st_mode & 0o777 == mode
    file.chmod(0o600)
    keys(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{}", b"[]", b"null", b'{"keys":[]}', b'{"keys":[{}]}', b'{"keys":["x"]}', b"\xff",
        b'{"keys":[{"secret":"short","signs_from":1}]}',
        b'{"keys":[{"secret":"%b","signs_from":"1"}]}' % LONG,
        b'{"keys":[{"secret":"%b","signs_from":2},{"secret":"%b","signs_from":1}]}' % (LONG, LONG),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_and_stays(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "tailrace.keys"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(UnreadableData, match="restore"):
        KeyFile(tmp_path).read()
    with pytest.raises(KeysUnavailable):
        keys(tmp_path)
    with pytest.raises(UnreadableData, match="restore"):
        KeyFile(tmp_path).rotate(NOW, revoke=False)
    assert file.read_bytes() == content


def test_a_directory_that_cannot_be_written_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "data"
    place.write_text("a file")
    with pytest.raises(KeysUnavailable) as shown:
        keys(place)
    assert f"cannot use the keys of subscriptions in {place}" in caplog.text
    assert str(tmp_path) not in str(shown.value)


def test_a_server_starts_in_a_directory_that_has_only_keys(tmp_path: Path) -> None:
    kid = keys(tmp_path).kid
    lock, database = DataDirectory(tmp_path).open()
    database.close()
    lock.close()
    assert keys(tmp_path).kid == kid


def test_a_new_key_is_published_before_it_signs_and_the_old_one_after_it_signed(
    tmp_path: Path,
) -> None:
    old = keys(tmp_path).kid
    KeyFile(tmp_path).rotate(NOW, revoke=False)
    during = keys(tmp_path)
    (new,) = published(during) - {old}
    assert during.kid == old
    assert keys(tmp_path, NOW + ACTIVATION_MS - 1).kid == old
    for age, signs, all_published in (
        (ACTIVATION_MS, new, {old, new}),
        (ACTIVATION_MS + PUBLISHED_MS - 1, new, {old, new}),
        (ACTIVATION_MS + PUBLISHED_MS, new, {new}),
    ):
        then = keys(tmp_path, NOW + age)
        assert (then.kid, published(then)) == (signs, all_published)


def test_rotations_keep_only_what_is_needed(tmp_path: Path) -> None:
    kept = [
        len(KeyFile(tmp_path).rotate(NOW + n * PUBLISHED_MS // 2, revoke=False)) for n in range(8)
    ]
    assert kept == [2, 3, 4, 4, 4, 4, 4, 4]


def test_rotations_at_once_are_all_carried_out(tmp_path: Path) -> None:
    barrier = threading.Barrier(6)

    def rotate() -> None:
        barrier.wait()
        KeyFile(tmp_path).rotate(NOW, revoke=False)

    threads = [threading.Thread(target=rotate) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(published(keys(tmp_path))) == 7
    assert len(list(tmp_path.iterdir())) == 1


def test_revoked_keys_are_gone_at_once(tmp_path: Path) -> None:
    KeyFile(tmp_path).rotate(NOW, revoke=False)
    before = published(keys(tmp_path))
    KeyFile(tmp_path).rotate(NOW, revoke=True)
    after = keys(tmp_path)
    assert published(after) == {after.kid}
    assert after.kid not in before


async def test_a_running_server_notices_a_rotation(tmp_path: Path) -> None:
    server = KeyFile(tmp_path)
    before = await server.get(NOW)
    KeyFile(tmp_path).rotate(NOW, revoke=True)
    assert await server.get(NOW + RELOAD_MS - 1) is before
    after = await server.get(NOW + RELOAD_MS)
    assert after.kid != before.kid
    assert await server.get(NOW + 2 * RELOAD_MS) is after
    (tmp_path / "tailrace.keys").chmod(0o644)
    for elapsed in (3 * RELOAD_MS, 3 * RELOAD_MS + 1):
        with pytest.raises(KeysUnavailable):
            await server.get(NOW + elapsed)
    (tmp_path / "tailrace.keys").chmod(0o600)
    assert (await server.get(NOW + 4 * RELOAD_MS)).kid == after.kid


async def test_tokens_survive_a_rotation(tmp_path: Path) -> None:
    signer = KeySigner(KeyFile(tmp_path))
    KeyFile(tmp_path).rotate(NOW, revoke=False)
    issued = NOW + ACTIVATION_MS - 1
    token = await signer.issue_token("jobs", 1, issued)
    ends = issued + WAKE_TOKEN_SECONDS * 1000
    assert await signer.verify_token(token, "jobs", ends - 1000) == 1
    with pytest.raises(TokenExpired):
        await signer.verify_token(token, "jobs", ends)
    assert await signer.kid(ends) != await signer.kid(issued)


def test_a_clock_before_the_first_key_uses_it() -> None:
    first, second = StoredSecret("a" * 43, NOW), StoredSecret("b" * 43, NOW + 10)
    assert select_secrets([first, second], NOW - 1_000_000) == [first, second]
