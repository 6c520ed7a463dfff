"""The page at /docs: everything in the document, and nothing from anywhere else."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.app import Application
from tailrace.protocols.durable_streams import docs_page
from tailrace.protocols.durable_streams.openapi.guide import EXAMPLE_URL
from tailrace.settings import Settings

VOID = {"meta", "input", "br"}


class Page(HTMLParser):
    """Checks that every element is closed, and collects what there is to collect."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value or "")
            elif name == "href" and tag == "a":
                self.links.append(value or "")
            elif name in ("src", "href", "srcset", "style", "action") or name.startswith("on"):
                self.loads.append(f"{tag} {name}={value}")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    document: dict[str, Any] = Application(Settings()).api.openapi()  # type: ignore[attr-defined]
    return document


@pytest.fixture(scope="module")
def page(document: dict[str, Any]) -> Page:
    return Page(docs_page.page(document))


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(Application(Settings(data=str(tmp_path))))
    async with httpx.AsyncClient(transport=transport, base_url="http://here:81") as client:
        yield client


def test_every_operation_is_there(document: dict[str, Any], page: Page) -> None:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method == "parameters":
                continue
            if "x-same-as" in operation:
                assert f"{method.upper()} {path}" in page.text
                assert operation["x-same-as"] in page.ids
            else:
                assert operation["operationId"] in page.ids
                assert f"{method.upper()}{path}" in page.text
                assert f"#{operation['operationId']}" in page.links


def test_every_parameter_header_error_and_command_is_there(
    document: dict[str, Any], page: Page
) -> None:
    components = document["components"]
    for name in components["parameters"]:
        assert name in page.text
    for name in components["headers"]:
        assert name.removesuffix(".always") in page.text
    for code, example in components["examples"].items():
        assert code in page.ids
        assert example["value"]["error"]["message"] in page.text
    for item in document["paths"].values():
        for operation in item.values():
            if "operationId" in operation:
                for sample in operation.get("x-codeSamples", []):
                    assert sample["source"] in page.text


def test_links_lead_somewhere(page: Page) -> None:
    assert len(set(page.ids)) == len(page.ids)
    for link in page.links:
        assert link == "/openapi.json" or link.removeprefix("#") in page.ids


@pytest.mark.parametrize("name", ["docs", "landing"])
def test_it_loads_nothing(document: dict[str, Any], name: str) -> None:
    text = docs_page.page(document) if name == "docs" else docs_page.landing_page()
    parsed = Page(text)
    assert parsed.loads == []
    assert not parsed.tags & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert "@import" not in text
    assert "url(" not in text


def test_text_is_escaped() -> None:
    assert docs_page.prose("a <b> & `<c>`\n\n- **d**\n- e") == (
        "<p>a &lt;b&gt; &amp; <code>&lt;c&gt;</code></p><ul><li><b>d</b></li><li>e</li></ul>"
    )
    assert docs_page.prose("```\n<a>\n\n`b`\n```") == "<pre><code>&lt;a&gt;\n\n`b`</code></pre>"


async def test_examples_call_the_server_that_was_asked(client: httpx.AsyncClient) -> None:
    answer = await client.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src")
    assert "http://here:81/v1/stream/chat/room-1" in answer.text
    assert EXAMPLE_URL not in answer.text


@pytest.mark.parametrize("host", ["<script>", 'a"b', "a/b", "a b", ""])
async def test_a_strange_host_is_not_repeated(client: httpx.AsyncClient, host: str) -> None:
    for accept in ("text/html", "*/*"):
        for path in ("/docs", "/"):
            answer = await client.get(path, headers={"host": host, "accept": accept})
            assert EXAMPLE_URL in unescape(answer.text)


async def test_it_is_rendered_once(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = itertools.count()
    monkeypatch.setattr(docs_page, "page", lambda _: f"page {next(numbers)}")
    assert [(await client.get("/docs")).text for _ in range(3)] == ["page 0"] * 3


async def test_the_landing_page_suits_who_asks(client: httpx.AsyncClient) -> None:
    browser = await client.get("/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert browser.headers["content-type"] == "text/html; charset=utf-8"
    assert {"/docs", "/health"} <= set(Page(browser.text).links)
    curl = await client.get("/", headers={"accept": "*/*"})
    assert curl.headers["content-type"] == "text/plain; charset=utf-8"
    assert "http://here:81/docs" in curl.text
    assert re.search(r"^curl http://here:81/v1/stream/hello$", curl.text, re.MULTILINE)
    assert browser.headers["vary"] == curl.headers["vary"] == "accept"
