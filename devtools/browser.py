"""A real browser without a window, driven by the Chrome DevTools Protocol."""

from __future__ import annotations

import itertools
import json
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
from websockets.sync.client import ClientConnection, connect

from devtools.processes import Process

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    """Return the program of a browser; None where none is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser(Process):
    """One page of Chromium; `profile` is a folder that does not exist yet."""

    def __init__(self, program: str, profile: Path) -> None:
        self._port_file = profile / "DevToolsActivePort"
        self._page: ClientConnection | None = None
        self._open = ExitStack()
        self._ids = itertools.count()
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
        port = ("--remote-debugging-port=0", f"--user-data-dir={profile}")
        super().__init__(
            "the browser",
            [program, *options, *port, "about:blank"],
            profile.with_name(f"{profile.name}.log"),
            ready=self._connect,
        )

    def open(self, url: str) -> None:
        """Load a page."""
        self._send("Page.navigate", url=url)
        loaded = f"location.href === {json.dumps(url)} && document.readyState === 'complete'"
        while not self.evaluate(loaded):
            pass

    def evaluate(self, script: str) -> Any:
        """Return the value of a script in the page; of a promise, once it is fulfilled."""
        result = self._send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def stop(self) -> int | None:
        self._open.close()
        return super().stop()

    def _connect(self) -> bool:
        try:
            port = self._port_file.read_text().split()[0]
            pages = httpx.get(f"http://127.0.0.1:{port}/json/list", trust_env=False).json()
            url = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
        except (OSError, IndexError, StopIteration, httpx.TransportError):
            return False
        self._page = self._open.enter_context(connect(url, max_size=None, proxy=None))
        return True

    def _send(self, method: str, **params: Any) -> dict[str, Any]:
        assert self._page is not None
        number = next(self._ids)
        self._page.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._page.recv())
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
