"""Stream-TTL, which each access renews, and Stream-Expires-At, which is fixed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from tailrace.settings import Settings
from tests.integration.durable_streams.conftest import local
from tests.support.wire import CLOSE, MOST, START, TEXT, error_of, place, producer, target

REQUESTS: dict[str, Callable[[httpx.Client, str], httpx.Response]] = {
    "GET": lambda client, path: client.get(path),
    "HEAD": lambda client, path: client.head(path),
    "POST": lambda client, path: client.post(path, content=b"x", headers=TEXT),
    "close": lambda client, path: client.post(path, headers=CLOSE),
    "DELETE": lambda client, path: client.delete(path),
}


@pytest.mark.parametrize("ttl", [0, MOST])
def test_a_ttl_is_stored(client: httpx.Client, path: str, ttl: int) -> None:
    assert client.put(path, headers={"stream-ttl": str(ttl)}).status_code == 201
    if ttl:
        assert client.head(path).headers["stream-ttl"] == str(ttl)
        assert client.get(path).status_code == 200


@pytest.mark.parametrize(
    "ttl",
    [
        "", "00060", "6 0", str(MOST + 1), "9" * 400, "\u00b2", "60, 60",
    ],
)  # fmt: skip
def test_a_malformed_ttl_is_refused(client: httpx.Client, path: str, ttl: str) -> None:
    answer = client.put(path, headers=[(b"stream-ttl", ttl.encode("latin-1"))])
    assert (answer.status_code, error_of(answer)["code"]) == (400, "BAD_HEADER")
    assert client.head(path).status_code == 404


@pytest.mark.parametrize(
    "expiry",
    [
        {"stream-ttl": "0"},
        {"stream-expires-at": "0001-01-01T00:00:00Z"},
    ],
)
@pytest.mark.parametrize("method", REQUESTS)
def test_a_stream_that_expires_at_once_is_created_and_missing(
    client: httpx.Client, path: str, expiry: dict[str, str], method: str
) -> None:
    created = client.put(path, content=b"old", headers=TEXT | expiry)
    assert created.status_code == 201
    assert place(created.headers["stream-next-offset"]) == f"{1:016d}_{3:016d}"
    assert REQUESTS[method](client, path).status_code == 404
    assert place(client.put(path, headers=TEXT | expiry).headers["stream-next-offset"]) == START


INSTANTS = [
    "2040-05-06T07:08:09Z",
    "2040-05-06T09:38:09+02:30",
    "2040-05-05T23:08:09.000-08:00",
]


def test_expires_at_is_compared_by_instant(client: httpx.Client, path: str) -> None:
    first, *others = INSTANTS
    assert client.put(path, headers={"stream-expires-at": first}).status_code == 201
    seen = client.head(path).headers["stream-expires-at"]
    assert datetime.fromisoformat(seen) == datetime(2040, 5, 6, 7, 8, 9, tzinfo=UTC)
    answers = {text: client.put(path, headers={"stream-expires-at": text}) for text in others}
    assert {text: answer.status_code for text, answer in answers.items()} == dict.fromkeys(
        others, 200
    )
    later = client.put(path, headers={"stream-expires-at": "2040-05-06T07:08:09.001Z"})
    assert later.status_code == 409


@pytest.mark.parametrize(
    "instant",
    [
        "", "tomorrow", "2030-01-01T00:00:00 Z", "2030-02-30T00:00:00Z",
    ],
)  # fmt: skip
def test_a_malformed_instant_is_refused(client: httpx.Client, path: str, instant: str) -> None:
    answer = client.put(path, headers={"stream-expires-at": instant})
    assert (answer.status_code, error_of(answer)["code"]) == (400, "BAD_HEADER")
    assert client.head(path).status_code == 404


@pytest.mark.parametrize("instant", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"])
def test_an_instant_in_a_year_of_five_digits_does_no_harm(
    client: httpx.Client, path: str, instant: str
) -> None:
    put = client.put(path, headers={"stream-expires-at": instant})
    try:
        assert put.status_code in (201, 400)
        alive = put.status_code == 201 and instant.startswith("9999")
        assert client.head(path).status_code == (200 if alive else 404)
        listing = client.get(client.base_url.join("/v1/streams"), params={"prefix": path})
        assert listing.status_code == 200
    finally:
        client.delete(path)


def test_ttl_and_expires_at_together_are_refused(client: httpx.Client, path: str) -> None:
    both = {"stream-ttl": "60", "stream-expires-at": "2040-01-01T00:00:00Z"}
    answer = client.put(path, headers=both)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "BAD_HEADER")
    assert client.head(path).status_code == 404


Use = Callable[[httpx.AsyncClient, str], Awaitable[object]]

USES: dict[str, tuple[Use, bool]] = {
    "HEAD": (lambda client, path: client.head(path), False),
    "catch-up": (lambda client, path: client.get(path), True),
    "catch-up from the tail": (
        lambda client, path: client.get(path, params={"offset": f"{1:016d}_{1:016d}"}),
        True,
    ),
    "now": (lambda client, path: client.get(path, params={"offset": "now"}), True),
    "long-poll": (
        lambda client, path: client.get(path, params={"live": "long-poll", "offset": "-1"}),
        True,
    ),
    "append": (lambda client, path: client.post(path, content=b"y", headers=TEXT), True),
    "close": (lambda client, path: client.post(path, headers=CLOSE), True),
    "close by a producer": (
        lambda client, path: client.post(path, headers=CLOSE | producer("p", 0, 0)),
        True,
    ),
}
"""Requests, each with whether it renews the TTL."""


async def test_every_access_but_head_renews_the_ttl(tmp_path: Path) -> None:
    """The clock is that of the test, so the time that a request takes does not matter."""
    now = 1_800_000_000_000
    settings = Settings(data=str(tmp_path / "data"))
    async with local(settings, lambda: now) as client:
        for name in USES:
            created = await client.put(
                target(name), content=b"x", headers=TEXT | {"stream-ttl": "10"}
            )
            assert created.status_code == 201
        end = datetime.fromtimestamp(now / 1000 + 10, UTC).isoformat()
        await client.put(target("fixed"), content=b"x", headers=TEXT | {"stream-expires-at": end})
        now += 9_000
        for name, (use, _) in USES.items():
            await use(client, target(name))
        assert (await client.get(target("fixed"))).status_code == 200
        now += 2_000
        alive = {name: (await client.head(target(name))).status_code for name in USES}
        assert alive == {name: 200 if renews else 404 for name, (_, renews) in USES.items()}
        assert (await client.head(target("fixed"))).status_code == 404
