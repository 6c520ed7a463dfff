"""The pages at / and /docs: they show the documents, and load nothing from other sites."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from tailrace import __version__, docs
from tailrace.app import Application
from tailrace.settings import Settings

VOID = {"meta", "input", "br"}
VIEWER = Path(docs.__file__).parent / "viewer"


class Page(HTMLParser):
    """Checks that every element is closed, and collects what the page links to and loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag not in {"link", "img", "iframe", "object", "base", "form"}
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "href" and tag == "a":
                self.links.append(value or "")
            elif name in ("src", "spec-url"):
                self.loads.append(value or "")
            else:
                assert name not in ("href", "srcset", "style", "action")
                assert not name.startswith("on")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Of a server without the console."""
    transport = httpx.ASGITransport(Application(Settings(data=str(tmp_path), console=False)))
    async with httpx.AsyncClient(transport=transport, base_url="http://here:81") as client:
        yield client


@pytest.mark.parametrize(
    ("path", "document"),
    [("/docs", "/openapi.json"), ("/docs/aviso", "/api-docs/openapi.json")],
)
async def test_the_viewer_shows_each_document(
    client: httpx.AsyncClient, path: str, document: str
) -> None:
    answer = await client.get(path)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = Page(answer.text)
    assert page.loads == [f"/docs/{docs.VIEWER}?{__version__}", document]
    assert {"/docs", "/docs/aviso"} < set(page.links)
    for url in (*page.loads, *page.links):
        assert (await client.get(url)).is_success


async def test_the_viewer_is_the_one_that_its_readme_names(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"/docs/{docs.VIEWER}")
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert hashlib.sha256(answer.content).hexdigest() in (VIEWER / "README.md").read_text()
    assert sum(file.stat().st_size for file in VIEWER.iterdir()) < 1_000_000


@pytest.mark.parametrize("path", ["/", "/docs", "/docs/aviso", f"/docs/{docs.VIEWER}"])
async def test_pages_load_nothing_from_other_sites(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path, headers={"accept": "text/html"})
    policy = dict(
        each.strip().split(" ", 1) for each in answer.headers["content-security-policy"].split(";")
    )
    assert policy.pop("style-src") == "'unsafe-inline'"
    assert policy.pop("img-src") == "data:"
    assert policy.pop("script-src") == policy.pop("connect-src") == "'self'"
    assert set(policy) >= {"default-src", "base-uri", "form-action", "frame-ancestors"}
    assert set(policy.values()) == {"'none'"}


async def test_examples_call_the_server_that_serves_them(client: httpx.AsyncClient) -> None:
    answer = await client.get("/openapi.json")
    assert "http://here:81/v1/stream/chat/room-1" in answer.text
    assert docs.EXAMPLE_URL not in answer.text


@pytest.mark.parametrize("host", ["<script>", 'a"b', "a/b", "a b", ""])
async def test_a_strange_host_is_not_repeated(client: httpx.AsyncClient, host: str) -> None:
    for accept in ("text/html", "*/*"):
        for path in ("/openapi.json", "/"):
            answer = await client.get(path, headers={"host": host, "accept": accept})
            assert docs.EXAMPLE_URL in unescape(answer.text)


async def test_the_landing_page_is_html_or_text(client: httpx.AsyncClient) -> None:
    browser = await client.get("/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert browser.headers["content-type"] == "text/html; charset=utf-8"
    page = Page(browser.text)
    assert {"/docs", "/health"} <= set(page.links)
    assert page.loads == []
    assert "@import" not in browser.text
    assert "url(" not in browser.text
    curl = await client.get("/", headers={"accept": "*/*"})
    assert curl.headers["content-type"] == "text/plain; charset=utf-8"
    assert "http://here:81/docs" in curl.text
    assert re.search(r"^curl http://here:81/v1/stream/hello$", curl.text, re.MULTILINE)
    assert browser.headers["vary"] == curl.headers["vary"] == "accept, accept-encoding"
    assert "{{" not in browser.text + curl.text
