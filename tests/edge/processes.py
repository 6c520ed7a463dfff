"""The edge as processes on loopback: Varnish, and Node on both sides of it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx
import pytest

from tests.conftest import ROOT, find_node
from tests.engines import free_port

VARNISH: Final = ROOT / ".engines" / "varnish" / "varnishd"
E2E: Final = ROOT / "tests" / "e2e"
READY: Final = re.compile(rb"ready on (http://127\.0\.0\.1:\d+)")
START_SECONDS: Final = 20.0
STOP_SECONDS: Final = 10.0
SHOWN_BYTES: Final = 8_000
VARNISH_OPTIONS: Final = (
    *("-F", "-j", "none", "-T", "none", "-s", "malloc,64m"),
    *("-p", "thread_pool_min=50", "-p", "thread_pool_max=1000"),
    # Longer than a pause in any test: edge.mjs must not use a connection that is being closed.
    *("-p", "timeout_idle=600"),
    # CloudFront compresses and cuts by itself; here edge.mjs does.
    *("-p", "http_gzip_support=off", "-p", "http_range_support=off"),
)

needs_varnish = pytest.mark.skipif(
    not VARNISH.exists() or shutil.which("cc") is None,
    reason="Varnish, or the C compiler that it needs, is missing; `make setup` says why",
)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an origin of the distribution is, and what CloudFront adds for it alone."""

    port: int
    headers: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"


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
        self._processes: list[subprocess.Popen[bytes]] = []

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
        """Ends it; harmless when it has ended."""
        processes, self._processes = self._processes, []
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def purge(self, tag: str) -> None:
        """Does what CloudFront does when the tag is invalidated, at once."""
        url = f"http://127.0.0.1:{self._cache_port}/"
        httpx.request("BAN", url, headers={"x-tag": tag}, trust_env=False).raise_for_status()

    def put_keys(self, entries: Mapping[str, str]) -> None:
        """Replaces what is in the key-value store of the viewer function."""
        new = self._store.with_suffix(".new")
        new.write_text(json.dumps(entries))
        new.replace(self._store)

    def output(self) -> str:
        logs = [self.directory / name for name in ("varnish.log", "edge.log")]
        return "\n".join(
            log.read_bytes()[-SHOWN_BYTES:].decode(errors="replace") for log in logs if log.exists()
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()
        if error is not None:
            print(self.output())

    def _start_cache(self) -> dict[str, int]:
        port, backend = free_port(), free_port()
        vcl = self.directory / "cache.vcl"
        vcl.write_text((E2E / "cache.vcl").read_text().replace("@BACKEND_PORT@", str(backend)))
        place = ("-n", self.directory / "varnish", "-a", f"127.0.0.1:{port}", "-f", vcl)
        log = self.directory / "varnish.log"
        self._run(log, [VARNISH, *VARNISH_OPTIONS, *place], lambda: _accepts(port))
        self._cache_port = port
        return {"port": port, "backend": backend}

    def _start_node(self, cache: dict[str, int] | None) -> None:
        config = self.directory / "config.json"
        origins = {name: asdict(origin) for name, origin in self._origins.items()}
        given = {"origins": origins, "cache": cache, "port": self._port, "store": str(self._store)}
        config.write_text(json.dumps({"template": self._template, **given}))
        log = self.directory / "edge.log"
        self._run(
            log, [find_node(), E2E / "edge.mjs", config], lambda: READY.search(log.read_bytes())
        )
        ready = READY.search(log.read_bytes())
        assert ready is not None
        self.url = ready[1].decode()

    def _run(self, log: Path, command: Sequence[str | Path], ready: Callable[[], object]) -> None:
        """Starts a process, and returns when it is ready."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            ended = process.poll()
            if ended is not None or time.monotonic() > deadline:
                state = "is not ready" if ended is None else f"ended with {ended}"
                raise AssertionError(f"{command[0]} {state}; its output:\n{self.output()}")
            time.sleep(0.01)


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
