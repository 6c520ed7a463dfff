"""The local server: one process, one event loop, one data directory."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Iterator

import uvicorn

from tailrace import __version__
from tailrace.app import Application
from tailrace.auth.authorizer import is_open
from tailrace.auth.hosts import LocalHosts
from tailrace.errors import BadSetting, CannotListen
from tailrace.limits import CABLE_FRAME_BYTES
from tailrace.settings import Settings
from tailrace.web.json_checker import JsonChecker
from tailrace.web.uvicorn.protocol import stream_protocol
from tailrace.web.uvicorn.websocket import SocketProtocol

_M_MMAP_THRESHOLD = -3
RETURNED_BYTES = 2 << 20
"""Freed blocks of this size leave the process at once; chunks of reads are smaller, and reused."""

BACKLOG = 2048
"""Connections that may wait to be accepted: a thousand readers may come back at once."""


class Server(uvicorn.Server):
    """uvicorn, telling live readers to go before it waits for connections to end."""

    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self._application = application

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            settings = self._application.settings
            assert sockets is not None
            host, port = sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            print(  # noqa: T201 - the one line that says where to connect
                f"Tailrace {__version__} is ready on http://{shown}:{port} ({_place(settings)})",
                flush=True,
            )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._application.drain()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM, and end as a program that did its work."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def serve(settings: Settings) -> None:
    """Run the server until it is told to stop."""
    level = settings.log_level
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if level == "info":
        logging.getLogger("botocore").setLevel("WARNING")  # It tells where credentials came from.
    refuse_strangers(settings)
    _return_large_blocks()
    application = Application(settings, hosts=local_hosts(settings))
    application.aviso  # noqa: B018 - what is wrong with its schema is told before anybody comes
    listener = _listen(settings)
    config = uvicorn.Config(
        application,
        http=stream_protocol(application.routes),
        ws=SocketProtocol,
        ws_max_size=CABLE_FRAME_BYTES,
        # A message goes to many: each connection would have to compress it anew.
        ws_per_message_deflate=False,
        log_config=None,
        log_level="warning" if level == "info" else level,
        access_log=False,
        server_header=False,
        # Proxies are believed by the application, for every route alike.
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(settings.shutdown_grace)),
        timeout_keep_alive=75,
        lifespan="off",
    )
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(_serve(application, config, listener))


async def _serve(application: Application, config: uvicorn.Config, listener: socket.socket) -> None:
    await application.start()
    try:
        application.api  # noqa: B018 - imported before the first request, not during it
        # What is loaded now stays: a full collection of it would hold the loop for tens of ms,
        # without it for less than one. Collecting less often makes requests no cheaper.
        gc.freeze()
        async with JsonChecker() as application.streams.checker, application.watchdog:
            await Server(config, application).serve([listener])
    finally:
        await application.stop()


def refuse_strangers(settings: Settings) -> None:
    """What everybody may do everything with is for this machine alone, unless told otherwise."""
    if settings.access == "auto" and is_open(settings) and not _is_loopback(settings.host):
        raise BadSetting(
            f"TAILRACE_HOST {settings.host} would let strangers read, write and delete: say who may"
            " (TAILRACE_SECRET, a jwt setting or TAILRACE_PUBLIC_STREAMS), or let everybody by"
            " TAILRACE_ACCESS=open"
        )


def local_hosts(settings: Settings) -> LocalHosts | None:
    """The hosts to answer where only the address keeps strangers out: pages get past that."""
    if settings.access != "auto" or not is_open(settings):
        return None
    return LocalHosts(settings.allowed_hosts, settings.allowed_origins)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _return_large_blocks() -> None:
    """Make glibc return freed bodies to the system: else it raises the size from which it does
    so with each large block, and would keep several of the largest bodies."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, RETURNED_BYTES)


def _place(settings: Settings) -> str:
    """Where the data is, for people."""
    if settings.store == "sqlite":
        return f"data in {settings.data}"
    endpoint = f" at {settings.endpoint_url}" if settings.endpoint_url else ""
    return f"data in the DynamoDB table {settings.table}{endpoint}"


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise CannotListen(
            f"cannot listen on {settings.host} port {settings.port}: {why};"
            " choose another with --host and --port"
        ) from None
