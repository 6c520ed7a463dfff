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
from tailrace.auth.keys import find_guessable
from tailrace.auth.origins import LocalHosts
from tailrace.errors import BadSetting, CannotListen
from tailrace.limits import CABLE_FRAME_BYTES, SECRET_BYTES
from tailrace.settings import Settings
from tailrace.web.json_checker import JsonChecker
from tailrace.web.uvicorn.protocol import stream_protocol
from tailrace.web.uvicorn.websocket_protocol import SocketProtocol

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_RETURNED_BYTES = 2 << 20
"""Freed blocks of this size are returned to the system; chunks of reads are smaller, and reused."""

logger = logging.getLogger("tailrace")

BACKLOG = 2048
"""Connections that may wait to be accepted: thousands of readers may reconnect at once."""


class Server(uvicorn.Server):
    """uvicorn; at shutdown it waits for connections, so live reads are ended first."""

    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self._application = application

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            settings = self._application.settings
            assert sockets is not None
            host, port = sockets[0].getsockname()[:2]
            host = f"[{host}]" if ":" in host else host
            ready = f"Tailrace {__version__} is ready on http://{host}:{port}"
            print(f"{ready} ({_describe_store(settings)})", flush=True)  # noqa: T201

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._application.drain()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM, and exit with 0: uvicorn would raise the signal again."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def serve(settings: Settings) -> None:
    """Run the server until SIGINT or SIGTERM."""
    level = settings.log_level
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if level == "info":
        logging.getLogger("botocore").setLevel("WARNING")  # It logs where credentials came from.
    check_exposure(settings)
    _return_freed_memory()
    application = Application(settings, hosts=local_hosts(settings))
    application.load()
    listener = _listen(settings)
    config = uvicorn.Config(
        application,
        http=stream_protocol(application.fast_lane()),
        ws=SocketProtocol,
        ws_max_size=CABLE_FRAME_BYTES,
        # Each connection would have to compress a message again that goes to all of them.
        ws_per_message_deflate=False,
        log_config=None,
        log_level="warning" if level == "info" else level,
        access_log=False,
        server_header=False,
        # The application reads the headers of trusted proxies, for every route alike.
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
        # Exclude everything loaded so far from garbage collection: a full one would block the loop
        # for tens of milliseconds, and takes less than one without these objects.
        gc.freeze()
        async with JsonChecker() as application.streams.checker, application.watchdog:
            await Server(config, application).serve([listener])
    finally:
        await application.stop()


def check_exposure(settings: Settings) -> None:
    """Refuse to listen beyond loopback without access control, unless the settings ask for it, or
    with a secret that can be guessed."""
    exposed = not _is_loopback(settings.host)
    for name in find_guessable(settings):
        sentence = (
            f"TAILRACE_{name.upper()} has a secret of fewer than {SECRET_BYTES} bytes, which can be"
            " guessed; `tailrace secret` makes one"
        )
        if exposed:
            raise BadSetting(sentence)
        logger.warning("%s", sentence)
    if settings.access == "auto" and is_open(settings) and exposed:
        raise BadSetting(
            f"TAILRACE_HOST {settings.host} would let strangers read, write and delete streams:"
            " control access with TAILRACE_SECRET, a JWT setting or TAILRACE_PUBLIC_STREAMS, or"
            " allow everyone with TAILRACE_ACCESS=open"
        )


def local_hosts(settings: Settings) -> LocalHosts | None:
    """The hosts to answer if only loopback protects the server, since web pages can reach it."""
    if settings.access != "auto" or not is_open(settings):
        return None
    return LocalHosts(settings.allowed_hosts, settings.allowed_origins)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _return_freed_memory() -> None:
    """Make glibc return the memory of freed bodies to the system.

    By default it returns blocks above a threshold, which each large block raises, so the process
    would keep the memory of several of the largest bodies."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _RETURNED_BYTES)
        # With that fixed, glibc would return the end of the heap after each freed chunk, and the
        # next chunk would have to get its pages again: reads would take twice the time.
        libc.mallopt(_M_TRIM_THRESHOLD, 8 * _RETURNED_BYTES)


def _describe_store(settings: Settings) -> str:
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
