"""Cache-Control of every kind of answer, entity tags, and 304."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from devtools.server import Server
from tailrace.limits import HISTORY_CACHE_SECONDS, LIVE_CACHE_SECONDS
from tests.integration.durable_streams.conftest import SECONDS, Connect
from tests.support.events import EventStream
from tests.support.wire import CLOSE, COMMON_HEADERS, START, TEXT, Connection, eventually, target

IMMUTABLE = "public, max-age=60, stale-while-revalidate=300"
LIVE = "public, max-age=1, stale-if-error=0"
LIVE_DATA = f"public, max-age=1, s-maxage={LIVE_CACHE_SECONDS}, stale-if-error=0"


def caching(answer: httpx.Response) -> str:
    return answer.headers["cache-control"]


def tag(client: httpx.Client, path: str, offset: str = "-1", accept: str = "identity") -> str:
    read = client.get(path, params={"offset": offset}, headers={"accept-encoding": accept})
    assert read.status_code == 200
    return read.headers["etag"]


def test_the_tail_is_revalidated_each_time(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    for _ in range(2):
        for offset in ("-1", client.head(path).headers["stream-next-offset"]):
            directives = caching(client.get(path, params={"offset": offset}))
            assert "no-cache" in directives
            assert "max-age" not in directives
            assert "stale-while-revalidate" not in directives
            assert "stale-if-error=0" in directives
        client.post(path, content=b"x", headers=TEXT)


def test_a_full_chunk_and_the_end_may_be_cached(cramped_client: httpx.Client, path: str) -> None:
    cramped_client.put(path, headers=TEXT)
    for _ in range(3):
        cramped_client.post(path, content=b"x" * 1000, headers=TEXT)
    full = cramped_client.get(path)
    assert caching(full) == IMMUTABLE
    offset = full.headers["stream-next-offset"]
    assert "no-cache" in caching(cramped_client.get(path, params={"offset": offset}))
    cramped_client.post(path, headers=CLOSE)
    last = cramped_client.get(path, params={"offset": offset})
    assert last.headers["stream-closed"] == "true"
    assert caching(last) == IMMUTABLE


def test_now_head_and_errors_are_not_stored(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"x", headers=TEXT)
    assert caching(client.get(path, params={"offset": "now"})) == "no-store"
    assert caching(client.head(path)) == "no-store"
    for bad in (
        client.get(f"{path}/none"),
        client.head(f"{path}/none"),
        client.get(path, params={"offset": "x"}),
        client.get(path, params={"live": "sse"}),
        client.post(path),
        client.patch(path),
    ):
        assert caching(bad) == "no-store"


def test_data_of_long_polls_is_kept_no_longer_than_the_stream_lives(
    client: httpx.Client, path: str
) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=LIVE_CACHE_SECONDS / 2)
    later = datetime.now(UTC) + timedelta(hours=1)
    for number, (name, value, wanted) in enumerate(
        [
            ("stream-ttl", "1", "s-maxage=1,"),
            ("stream-ttl", "3600", f"s-maxage={LIVE_CACHE_SECONDS},"),
            ("stream-expires-at", later.isoformat(), f"s-maxage={LIVE_CACHE_SECONDS},"),
            ("stream-expires-at", soon.isoformat(), "s-maxage=1,"),
        ]
    ):
        created = client.put(f"{path}-{number}", headers={**TEXT, name: value})
        if created.status_code == 201:
            client.post(f"{path}-{number}", content=b"x", headers=TEXT)
            poll = {"live": "long-poll", "offset": created.headers["stream-next-offset"]}
            answer = client.get(f"{path}-{number}", params=poll)
            # On a slow machine it has expired.
            assert answer.status_code == 404 or wanted in caching(answer)


def test_long_polls_may_be_shared_for_a_second(cramped_client: httpx.Client, path: str) -> None:
    position = cramped_client.put(path, headers=TEXT).headers["stream-next-offset"]
    cramped_client.post(path, content=b"x", headers=TEXT)
    poll = {"live": "long-poll", "offset": position}
    assert caching(cramped_client.get(path, params=poll)) == LIVE_DATA
    # A later stream of this name may begin otherwise.
    assert caching(cramped_client.get(path, params=poll | {"offset": "-1"})) == LIVE
    silent = cramped_client.get(path, params=poll | {"offset": "now"})
    assert (silent.status_code, caching(silent)) == (204, LIVE)
    cramped_client.post(path, headers=CLOSE)
    ended = cramped_client.get(path, params=poll | {"offset": "now"})
    assert (ended.status_code, caching(ended)) == (204, LIVE)


def test_event_streams_are_not_cached(connect: Connect, client: httpx.Client, path: str) -> None:
    client.put(path, content=b"x", headers=TEXT)
    headers = EventStream(connect(), path).headers
    assert headers["cache-control"] == "no-cache"
    assert "etag" not in headers


def test_an_etag_names_the_bytes(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"x" * 2000, headers=TEXT)
    first = tag(client, path)
    assert re.fullmatch('"[!#-~]+"', first)
    assert tag(client, path) == tag(client, path, START) == first
    seen = [first, tag(client, path, accept="gzip"), tag(client, path, accept="br")]
    client.post(path, content=b"y", headers=TEXT)
    seen.append(tag(client, path))
    seen.append(tag(client, path, f"{1:016d}_{2000:016d}"))
    seen.append(tag(client, path, f"{2:016d}_{2001:016d}"))
    client.post(path, headers=CLOSE)
    seen.append(tag(client, path))
    seen.append(tag(client, path, f"{2:016d}_{2001:016d}"))
    client.delete(path)
    client.put(path, content=b"x" * 2000, headers=TEXT)
    seen.append(tag(client, path))
    assert len(set(seen)) == len(seen)


def test_the_etag_changes_when_a_chunk_is_no_longer_the_last(
    cramped_client: httpx.Client, path: str
) -> None:
    """The body is the same, but a cache must not go on serving Stream-Up-To-Date."""
    cramped_client.put(path, content=b"x" * 1024, headers=TEXT)
    before = cramped_client.get(path)
    cramped_client.post(path, content=b"y", headers=TEXT)
    after = cramped_client.get(path, headers={"if-none-match": before.headers["etag"]})
    assert before.headers["stream-up-to-date"] == "true"
    assert "stream-up-to-date" not in after.headers
    assert after.headers["etag"] != before.headers["etag"]
    assert (after.status_code, after.content) == (200, before.content)


@pytest.mark.parametrize(
    ("held", "matches"),
    [
        ("{tag}", True),
        ('W/"a",W/{tag},"c"', True),
        ("*", True),
        ("{bare}", False),
        ("", False),
    ],
)
def test_if_none_match(wire: Connection, path: str, held: str, matches: bool) -> None:
    wire.ask("PUT", target(path), TEXT | CLOSE, b"hello")
    whole = wire.ask("GET", target(path))
    etag = whole.headers["etag"]
    sent = held.format(tag=etag, bare=etag.strip('"'))
    answer = wire.ask("GET", target(path), {"if-none-match": sent})
    assert answer.status == (304 if matches else 200)
    assert answer.body == (b"" if matches else b"hello")
    repeated = (
        "etag",
        "cache-control",
        "stream-next-offset",
        "stream-up-to-date",
        "stream-closed",
        "vary",
    )
    assert {name: answer.headers[name] for name in repeated} == {
        name: whole.headers[name] for name in repeated
    }
    assert COMMON_HEADERS.items() <= dict(answer.headers).items()
    if matches:
        assert answer.headers.get("content-length", "0") in ("0", "5")
        assert "transfer-encoding" not in answer.headers
    assert wire.ask("GET", target(path)).body == b"hello"


def test_if_none_match_in_several_fields(wire: Connection, path: str) -> None:
    wire.ask("PUT", target(path), TEXT, b"hello")
    etag = wire.ask("GET", target(path)).headers["etag"]
    answer = wire.ask("GET", target(path), [("if-none-match", '"a"'), ("if-none-match", etag)])
    assert answer.status == 304


def test_304_of_an_empty_stream_and_of_a_long_poll(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    held = {"if-none-match": tag(client, path)}
    assert client.get(path, headers=held).status_code == 304
    client.post(path, content=b"x", headers=TEXT)
    assert client.get(path, headers=held).status_code == 200
    poll = {"live": "long-poll", "offset": "-1"}
    first = client.get(path, params=poll)
    again = client.get(path, params=poll, headers={"if-none-match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert again.headers["stream-cursor"].isdigit()


def test_a_conditional_read_creates_nothing(client: httpx.Client, path: str) -> None:
    assert client.get(path, headers={"if-none-match": "*"}).status_code == 404
    client.put(path, content=b"x", headers=TEXT)
    now = client.get(path, params={"offset": "now"}, headers={"if-none-match": "*"})
    assert now.status_code == 200
    assert client.head(path, headers={"if-none-match": "*"}).status_code == 200
    assert client.put(path, headers=TEXT | {"if-none-match": "*"}).status_code == 200


def test_cacheable_answers_have_the_cache_tag_of_the_incarnation(
    client: httpx.Client, path: str
) -> None:
    tags = []
    for _ in range(2):
        client.put(path, content=b"data", headers={"content-type": "text/plain"})
        offset = client.head(path).headers["stream-next-offset"]
        reads = [
            client.get(path),
            client.get(path, params={"offset": offset}),
            client.get(path, params={"offset": "-1", "live": "long-poll"}),
        ]
        (tag,) = {read.headers["cache-tag"] for read in reads}
        assert re.fullmatch("s-[0-9a-f]{16}", tag)
        tags.append(tag)
        client.delete(path)
    assert tags[0] != tags[1]


@pytest.mark.parametrize(("ttl", "max_age"), [(30, 30), (3600, 60)])
def test_answers_are_not_cached_longer_than_the_ttl(
    client: httpx.Client, path: str, ttl: int, max_age: int
) -> None:
    created = client.put(path, content=b"all", headers=TEXT | CLOSE | {"stream-ttl": str(ttl)})
    end = {"offset": created.headers["stream-next-offset"]}
    assert caching(client.get(path, params=end)) == f"public, max-age={max_age}"


def test_a_beginning_that_nothing_purges_is_cached_for_a_moment(
    client: httpx.Client, path: str
) -> None:
    """Else a stream that is created again would begin with the data of the one before it."""
    created = client.put(path, content=b"all", headers=TEXT | CLOSE | {"stream-ttl": "3600"})
    end = created.headers["stream-next-offset"]
    for offset in ("-1", f"{0:016d}_{0:016d}"):
        assert caching(client.get(path, params={"offset": offset})) == "public, max-age=1"
    assert caching(client.get(path)) == "public, max-age=1"
    source = {"stream-forked-from": target(path)}
    fork = f"{path}-fork"
    client.put(fork, headers=TEXT | CLOSE | source | {"stream-ttl": "3600"})
    assert caching(client.get(fork, params={"offset": end})) == "public, max-age=1"


def test_answers_are_not_cached_longer_than_the_stream_lives(
    client: httpx.Client, path: str
) -> None:
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=50)
    expiry = {"stream-expires-at": end.strftime("%Y-%m-%dT%H:%M:%SZ")}
    created = client.put(path, content=b"all", headers=TEXT | CLOSE | expiry)
    offset = {"offset": created.headers["stream-next-offset"]}
    most = (end - datetime.now(UTC)).total_seconds()
    first, second = caching(client.get(path, params=offset)).split(", ")
    least = (end - datetime.now(UTC)).total_seconds()
    assert first == "public"
    assert least - 1 <= int(second.removeprefix("max-age=")) <= most


def test_a_compacted_chunk_is_cached_longer(tmp_path: Path) -> None:
    settings = {
        "TAILRACE_CHUNK_BYTES": "1024",
        "TAILRACE_SEGMENT_MAX_MESSAGES": "2",
        "TAILRACE_COMPACT_INTERVAL": "0.05",
        "TAILRACE_HOT_BYTES": "0",
    }
    with (
        Server(tmp_path / "data", settings) as server,
        httpx.Client(
            base_url=f"{server.url}/v1/stream", trust_env=False, timeout=SECONDS
        ) as client,
    ):
        for path, more in {"/a": {}, "/b": {"stream-ttl": "1000"}}.items():
            client.put(path, headers={**TEXT, **more})
            for _ in range(5):
                client.post(path, content=b"x" * 600, headers=TEXT)
        old = f"public, max-age={HISTORY_CACHE_SECONDS}, stale-while-revalidate=300"
        eventually(lambda: caching(client.get("/a")) == old, seconds=SECONDS)
        # The expiry of the stream and its tail are still respected.
        own = "public, max-age=1000"
        eventually(lambda: caching(client.get("/b")) == own, seconds=SECONDS)
        tail = client.get("/a", params={"offset": f"{4:016d}_{2400:016d}"})
        assert "no-cache" in caching(tail)
