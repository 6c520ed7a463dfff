"""The console's files: how they are served, and to whom."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import brotli
import httpx
import pytest

from tailrace import console
from tailrace.app import Application
from tailrace.settings import Settings

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
ASSET = min(console.names() - {console.INDEX})

Make = Callable[..., httpx.AsyncClient]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def client(
        peer: str = "127.0.0.1", base_url: str = "http://localhost:4437", **settings: Any
    ) -> httpx.AsyncClient:
        application = Application(Settings(data=str(tmp_path), **settings))
        transport = httpx.ASGITransport(application, client=(peer, 1))
        return httpx.AsyncClient(transport=transport, base_url=base_url)

    return client


async def test_browsers_get_the_console_and_others_plain_text(make: Make) -> None:
    client = make()
    page = await client.get("/", headers=BROWSER)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    for name in console.names() - {console.INDEX}:
        assert name.startswith(f"{console.ASSETS}/")
    loaded = re.findall(r'(?:src|href)="/([^"]+)"', page.text)
    assert set(loaded) == console.names() - {console.INDEX}
    text = await client.get("/", headers={"accept": "*/*"})
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert page.headers["vary"] == text.headers["vary"] == "accept, accept-encoding"


async def test_files_never_change_under_their_names(make: Make) -> None:
    for name in console.names() - {console.INDEX}:
        assert re.search(r"-[\w-]{8}\.(js|css|svg)$", name)
        answer = await make().get(f"/{name}")
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["content-type"].split(";")[0] in (
            *("text/javascript", "text/css", "image/svg+xml"),
        )
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "name", ["", "no.js", "../console/__init__.py", "..%2Findex.html", "a/b.js"]
)
async def test_there_are_no_other_files(make: Make, name: str) -> None:
    answer = await make().get(f"/console/{name}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NOT_FOUND")


async def test_a_file_is_revalidated(make: Make) -> None:
    client = make()
    for path in ("/", f"/{ASSET}"):
        etag = (await client.get(path, headers=BROWSER)).headers["etag"]
        again = await client.get(path, headers={**BROWSER, "if-none-match": f"{etag}"})
        assert (again.status_code, again.content) == (304, b"")
        other = await client.get(path, headers={**BROWSER, "if-none-match": '"0"'})
        assert other.status_code == 200


@pytest.mark.parametrize(
    ("accepted", "encoding", "decode"),
    [
        ("gzip, deflate, br, zstd", "br", brotli.decompress),
        ("gzip;q=1.0, deflate", "gzip", gzip.decompress),
    ],
)
async def test_files_are_compressed(
    make: Make, accepted: str, encoding: str, decode: Callable[[bytes], bytes]
) -> None:
    client = make()
    request = client.build_request("GET", f"/{ASSET}", headers={"accept-encoding": accepted})
    answer = await client.send(request, stream=True)
    body = b"".join([part async for part in answer.aiter_raw()])
    assert answer.headers["content-encoding"] == encoding
    plain = await client.get(f"/{ASSET}", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert decode(body) == plain.content


async def test_nothing_is_loaded_from_elsewhere_and_no_code_is_inline(make: Make) -> None:
    page = await make().get("/", headers=BROWSER)
    policy = dict(
        each.strip().split(" ", 1) for each in page.headers["content-security-policy"].split(";")
    )
    assert policy.pop("require-trusted-types-for") == "'script'"
    own = {policy.pop(f"{kind}-src") for kind in ("script", "style", "img", "connect")}
    assert own == {"'self'"}
    assert set(policy) == {"default-src", "base-uri", "form-action", "frame-ancestors"}
    assert set(policy.values()) == {"'none'"}
    assert not re.search(r"<style|<script>| on\w+=| style=", page.text)


@pytest.mark.parametrize(
    ("peer", "base_url", "settings", "shown"),
    [
        ("127.0.0.1", "http://localhost:4437", {}, True),
        ("127.0.0.1", "http://localhost:4437", {"console": False}, False),
        ("203.0.113.7", "https://streams.example", {"secret": "0f" * 32}, True),
        ("127.0.0.1", "http://127.0.0.1:4437", {"access": "open"}, True),
        ("::1", "http://[::1]:4437", {"access": "open"}, True),
        ("203.0.113.7", "http://localhost:4437", {"access": "open"}, False),
        # Through a proxy on this machine.
        ("127.0.0.1", "http://streams.example", {"access": "open"}, False),
    ],
)
async def test_without_secrets_it_is_shown_on_loopback_only(
    make: Make, peer: str, base_url: str, settings: dict[str, Any], shown: bool
) -> None:
    page = await make(peer, base_url, **settings).get("/", headers=BROWSER)
    assert ('id="app"' in page.text) is shown


def test_it_is_small() -> None:
    files = [console.read(name) for name in console.names()]
    assert sum(len(file.encoded("br")[0]) for file in files if file) < 150_000
