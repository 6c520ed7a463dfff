"""The edge as processes on loopback: Varnish, with Node in front of it and behind it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from devtools.node import find_node
from devtools.processes import ENGINES, Process, accepts, free_ports

VARNISH: Final = ENGINES / "varnish" / "varnishd"
HERE: Final = Path(__file__).parent
READY: Final = re.compile(r"ready on (http://127\.0\.0\.1:\d+)")
VARNISH_OPTIONS: Final = (
    *("-F", "-j", "none", "-T", "none", "-s", "malloc,64m"),
    # A response that lasts takes two threads.
    *("-p", "thread_pool_min=50", "-p", "thread_pool_max=3000"),
    # Longer than a pause in any test: edge.mjs must not reuse a connection that is being closed.
    *("-p", "timeout_idle=600"),
    # CloudFront compresses and truncates responses itself; here edge.mjs does.
    *("-p", "http_gzip_support=off", "-p", "http_range_support=off"),
)


@dataclass(frozen=True, slots=True)
class Origin:
    """The address of an origin, and the headers that CloudFront adds for it."""

    port: int
    headers: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    prefix: str = ""
    """Prefix of all paths there: the name of a bucket, where it is not part of the host."""


class Edge:
    """The distribution of a CloudFormation template, on loopback."""

    def __init__(
        self,
        directory: Path,
        template: Mapping[str, Any],
        origins: Mapping[str, Origin],
        *,
        port: int = 0,
        caching: bool = True,
    ) -> None:
        self.directory = directory
        self.url = ""
        self._store = directory / "store.json"
        self._template = template
        self._origins = origins
        self._port = port
        self._caching = caching
        self._cache_port = 0
        self._processes: list[Process] = []

    def start(self) -> Self:
        assert not self._processes, "the edge is running already"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.put_keys({})
        try:
            cache = self._start_cache() if self._caching else None
            self._start_node(cache)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the edge; does nothing if it has stopped."""
        processes, self._processes = self._processes, []
        for process in reversed(processes):
            process.stop()

    def purge(self, tag: str) -> None:
        """Invalidate a tag, like CloudFront, but immediately."""
        url = f"http://127.0.0.1:{self._cache_port}/"
        httpx.request("BAN", url, headers={"x-tag": tag}, trust_env=False).raise_for_status()

    def put_keys(self, entries: Mapping[str, str]) -> None:
        """Replace the contents of the viewer function's key-value store."""
        new = self._store.with_suffix(".new")
        new.write_text(json.dumps(entries))
        new.replace(self._store)

    def output(self) -> str:
        return "\n".join(process.output() for process in self._processes)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is not None:
            print(self.output())
        self.stop()

    def _start_cache(self) -> dict[str, int]:
        port, backend = free_ports(2)
        vcl = self.directory / "cache.vcl"
        vcl.write_text((HERE / "cache.vcl").read_text().replace("@BACKEND_PORT@", str(backend)))
        place = ("-n", self.directory / "varnish", "-a", f"127.0.0.1:{port}", "-f", vcl)
        command: list[str | Path] = [VARNISH, *VARNISH_OPTIONS, *place]
        log = self.directory / "varnish.log"
        self._run(Process("Varnish", command, log, ready=lambda: accepts(port)))
        self._cache_port = port
        return {"port": port, "backend": backend}

    def _start_node(self, cache: dict[str, int] | None) -> None:
        config = self.directory / "config.json"
        origins = {name: asdict(origin) for name, origin in self._origins.items()}
        given = {"origins": origins, "cache": cache, "port": self._port, "store": str(self._store)}
        config.write_text(json.dumps({"template": self._template, **given}))
        command: list[str | Path] = [find_node(), HERE / "edge.mjs", config]
        node = Process(
            "the edge",
            command,
            self.directory / "edge.log",
            ready=lambda: READY.search(node.printed()),
        )
        self._run(node)
        ready = READY.search(node.printed())
        assert ready is not None
        self.url = ready[1]

    def _run(self, process: Process) -> None:
        self._processes.append(process.start())
