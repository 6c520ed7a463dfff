"""The snippets of docs/client.md run as they are, one after the other, on the server they name."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

from devtools.processes import ROOT
from devtools.server import Server
from tailrace import client
from tailrace.client import AsyncClient, AsyncStream, AsyncSubscription, Client, Stream
from tailrace.client import Subscription as PullWake

PAGE = (ROOT / "docs" / "client.md").read_text()
README = (ROOT / "README.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
SHOWN = "http://127.0.0.1:4437"


def run(snippet: str, url: str) -> str:
    code = snippet.replace(SHOWN, url)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_snippets_run(own_server: Server) -> None:
    with Client(own_server.url) as here:
        first, producer, tail, work = SNIPPETS
        assert run(first, own_server.url) == "ada hello\n"
        run(producer, own_server.url)
        assert len(here.stream("logs/app").read().text().splitlines()) == 10_000
        here.stream("chat/room-1").close()
        assert "{'user': 'ada', 'text': 'hello'}" in run(tail, own_server.url)
        run(work, own_server.url)
        inbox = here.stream("inbox/ada", content_type="application/json")
        inbox.create()
        inbox.append(1)
        assert run(work, own_server.url) == "inbox/ada [1]\n"
        (shown,) = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
        assert run(shown, own_server.url) == "{'user': 'ada', 'text': 'hello'}\n"


def test_the_page_names_every_error() -> None:
    names = {name for name in client.__all__ if name.endswith("Error")}
    assert {name for name in names if f"`{name}`" not in PAGE} == set()


def test_both_clients_have_the_same_methods() -> None:
    pairs = ((Client, AsyncClient), (Stream, AsyncStream), (PullWake, AsyncSubscription))
    for one, other in pairs:
        public = {name for name in vars(one) if not name.startswith("_")}
        also = {name for name in vars(other) if not name.startswith("_")}
        assert public ^ also <= {"content_type", "get_content_type"}
        for name in public & also:
            here, there = getattr(one, name), getattr(other, name)
            # `run` can be interrupted in a thread, where a task is cancelled.
            if callable(here) and name not in ("run", "iterate"):
                parameters = list(inspect.signature(here).parameters)
                assert parameters == list(inspect.signature(there).parameters), name
