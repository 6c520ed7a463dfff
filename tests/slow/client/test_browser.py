"""The `EventSource` of a real browser, in the ten lines of docs/http.md."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from devtools.browser import NAMES, Browser, find_browser
from devtools.server import Server
from tests.slow.conformance.relay import Relay
from tests.support.wire import CLOSE, JSON, eventually

PAGE = Path(__file__).parents[3] / "docs" / "http.md"
SECONDS = 300.0


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip(f"no browser is installed: none of {', '.join(NAMES)} is in PATH")
    with Browser(program, tmp_path / "profile") as browser:
        yield browser


def test_a_page_survives_lifetimes_restarts_and_drops(browser: Browser, tmp_path: Path) -> None:
    """It loses and repeats nothing, and stops when the stream is closed."""
    script = re.search(r"```js\n(const messages.*?)```", PAGE.read_text(), re.DOTALL)
    assert script is not None
    expected = []
    with (
        Server(tmp_path / "data", {"TAILRACE_SSE_LIFETIME": "2"}) as server,
        Relay([server.port]) as relay,
        httpx.Client(base_url=f"{server.url}/v1/stream/chat/", trust_env=False) as client,
    ):
        client.put("room-1", headers=JSON)
        browser.open(f"{relay.url}/health")
        browser.evaluate(script[1])
        for turn in range(200):
            if turn % 70 == 35:
                server.restart()
            elif turn % 10 == 5:
                relay.cut()
            expected += [turn, turn + 1000]
            answer = client.post("room-1", content=json.dumps(expected[-2:]), headers=JSON)
            assert answer.status_code == 204
            time.sleep(0.05)
        client.post("room-1", headers=CLOSE)
        eventually(
            lambda: browser.evaluate("source.readyState === EventSource.CLOSED"), seconds=SECONDS
        )
        assert browser.evaluate("messages") == expected


MANY = """
    const got = {}
    let batch = []
    const names = [0, 1, 2, 3].map((number) => `stream=many/${number}`).join("&")
    const source = new EventSource(`/v1/read?${names}&offset=-1&live=sse`)
    source.addEventListener("open", () => { batch = [] })
    source.addEventListener("data", ({ data }) => batch.push(JSON.parse(data)))
    source.addEventListener("closed", ({ data }) => {
      batch.push({ data: ["closed"], ...JSON.parse(data) })
    })
    source.addEventListener("control", () => {
      for (const { stream, data } of batch) (got[stream] ??= []).push(...data)
      batch = []
    })
"""


def test_a_page_follows_many_streams(browser: Browser, tmp_path: Path) -> None:
    """One connection is enough, also for a stream that is created later, whatever breaks."""
    paths = [f"many/{number}" for number in range(4)]
    expected: dict[str, list[object]] = {path: [] for path in paths}
    with (
        Server(tmp_path / "data", {"TAILRACE_SSE_LIFETIME": "2"}) as server,
        Relay([server.port]) as relay,
        httpx.Client(base_url=f"{server.url}/v1/stream/", trust_env=False) as client,
    ):
        for path in paths[:3]:
            client.put(path, headers=JSON)
        browser.open(f"{relay.url}/health")
        browser.evaluate(MANY)
        for turn in range(160):
            if turn == 80:
                server.restart()
                client.put(paths[3], headers=JSON)
            elif turn % 10 == 5:
                relay.cut()
            path = paths[turn % (4 if turn >= 80 else 3)]
            expected[path].append(turn)
            answer = client.post(path, content=json.dumps(turn), headers=JSON)
            assert answer.status_code == 204
            time.sleep(0.05)
        for path in paths:
            client.post(path, headers=CLOSE)
            expected[path].append("closed")
        eventually(
            lambda: browser.evaluate("source.readyState === EventSource.CLOSED"), seconds=SECONDS
        )
        assert browser.evaluate("got") == expected


def test_a_page_may_open_before_the_first_message(browser: Browser, tmp_path: Path) -> None:
    with Server(tmp_path / "data", {"TAILRACE_SSE_LIFETIME": "1"}) as server:
        browser.open(f"{server.url}/health")
        browser.evaluate("""
            const got = []
            const source = new EventSource("/ds/room?offset=-1&live=sse")
            source.addEventListener("data", (event) => got.push(...JSON.parse(event.data)))
            source.addEventListener("deleted", () => got.push("deleted"))
            new Promise((resolve) => { source.onopen = resolve })
        """)
        url = f"{server.url}/v1/stream/room"
        # The first answer ends before the stream begins.
        time.sleep(2)
        httpx.put(url, content=b"[1]", headers=JSON, trust_env=False)
        eventually(lambda: browser.evaluate("got") == [1], seconds=SECONDS)
        httpx.post(url, content=b"2", headers=JSON, trust_env=False)
        eventually(lambda: browser.evaluate("got") == [1, 2], seconds=SECONDS)
        httpx.delete(url, trust_env=False)
        # A browser that is between two answers hears of it by the next one, which is refused.
        eventually(
            lambda: browser.evaluate(
                "got.at(-1) === 'deleted' || source.readyState === EventSource.CLOSED"
            ),
            seconds=SECONDS,
        )
