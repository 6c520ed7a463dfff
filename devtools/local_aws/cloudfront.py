"""The part of CloudFront's API that purges use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from xml.etree import ElementTree

NAMESPACE = "{http://cloudfront.amazonaws.com/doc/2020-05-31/}"


class CloudFrontApi:
    """Serves CreateInvalidation for tags on loopback, and passes each tag to `purge`."""

    def __init__(self, purge: Callable[[str], None]) -> None:
        self.purged: list[str] = []
        self._purge = purge
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                answer = outer._invalidate(self.path, body)
                self.send_response(201 if answer else 400)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _invalidate(self, path: str, body: bytes) -> bytes:
        batch = ElementTree.fromstring(body)
        paths = [item.text or "" for item in batch.iter(f"{NAMESPACE}Path")]
        if not path.endswith("/invalidation") or not all(item.startswith("#") for item in paths):
            return b""
        for item in paths:
            self._purge(item[1:])
            self.purged.append(item[1:])
        return b"<Invalidation><Id>I1</Id><Status>Completed</Status></Invalidation>"
