"""The server: one process, one event loop, with its own data directory or on DynamoDB."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import ipaddress
import logging
import os
import resource
import signal
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import uvicorn

from tailrace import __version__
from tailrace.app import Application
from tailrace.auth.authorizer import is_open
from tailrace.auth.keys import find_guessable
from tailrace.auth.origins import LocalHosts
from tailrace.clock import PeriodicTask
from tailrace.errors import BadSetting, CannotListen
from tailrace.limits import CABLE_FRAME_BYTES, SECRET_BYTES
from tailrace.settings import Settings
from tailrace.web.json_checker import JsonChecker
from tailrace.web.log_lines import AccessLog, LoggedApp, set_up_logging
from tailrace.web.uvicorn.protocol import stream_protocol
from tailrace.web.uvicorn.websocket_protocol import SocketProtocol

if TYPE_CHECKING:
    from tailrace.aws.handlers.container import Container
    from tailrace.aws.runtime.container_metrics import ContainerMetrics

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_RETURNED_BYTES = 2 << 20
"""Freed blocks of this size are returned to the system; chunks of reads are smaller, and reused."""

logger = logging.getLogger("tailrace")
KEEP_ALIVE_SECONDS: Final = {"server": 75, "container": 660}
"""How long an idle connection is kept. In front of a container there is a load balancer, which must
be the first to close one: it may send a request just when the server closes."""

BACKLOG = 2048
"""Connections that may wait to be accepted: thousands of readers may reconnect at once."""


class Server(uvicorn.Server):
    """uvicorn; at shutdown it waits for connections, so live reads are ended first."""

    def __init__(
        self,
        config: uvicorn.Config,
        application: Application,
        metrics: ContainerMetrics | None = None,
    ) -> None:
        """`metrics`: those of a container, to be logged."""
        super().__init__(config)
        self._application = application
        interval = application.settings.metrics_interval if metrics is not None else 0
        self._metrics = metrics if interval else None
        self._reporting = PeriodicTask("reporting", self._report, interval)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            settings = self._application.settings
            assert sockets is not None
            host, port = sockets[0].getsockname()[:2]
            host = f"[{host}]" if ":" in host else host
            ready = f"Tailrace {__version__} is ready on http://{host}:{port}"
            print(f"{ready} ({_describe_store(settings)})", flush=True)  # noqa: T201
            logger.info("started Tailrace %s as process %d", __version__, os.getpid())
            self._reporting.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info("draining %d connections", len(self.server_state.connections))
        await self._application.drain()
        await super().shutdown(sockets)
        await self._reporting.stop()
        await self._report()

    async def _report(self) -> None:
        """Log the metrics, also the last ones before the end."""
        if self._metrics is not None:
            connections = len(self.server_state.connections)
            print(self._metrics.line(connections), flush=True)  # noqa: T201

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
    set_up_logging(settings)
    if level == "info":
        logging.getLogger("botocore").setLevel("WARNING")  # It logs where credentials came from.
    check_exposure(settings)
    _return_freed_memory()
    _allow_many_connections()
    container = _container(settings)
    application = (
        Application(settings, hosts=local_hosts(settings))
        if container is None
        else container.application
    )
    application.load()
    listener = _listen(settings)
    log = AccessLog(settings)
    lane = (container or application).fast_lane()._replace(record=log.record)
    config = uvicorn.Config(
        LoggedApp(application if container is None else container.asgi(), log),
        http=stream_protocol(lane),
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
        timeout_keep_alive=KEEP_ALIVE_SECONDS["server" if container is None else "container"],
        lifespan="off",
    )
    with log, asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        server = Server(config, application, None if container is None else container.metrics)
        runner.run(_serve(application, server, listener))


def _container(settings: Settings) -> Container | None:
    """None: the server is not behind CloudFront."""
    if not settings.origin_secret:
        return None
    from tailrace.aws.handlers.container import Container

    return Container(settings)


async def _serve(application: Application, server: Server, listener: socket.socket) -> None:
    await application.start()
    try:
        # Exclude everything loaded so far from garbage collection: a full one would block the loop
        # for tens of milliseconds, and takes less than one without these objects.
        gc.freeze()
        async with JsonChecker() as application.streams.checker, application.watchdog:
            await server.serve([listener])
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


def _allow_many_connections() -> None:
    """Raise the limit of open files, of which each connection is one, as far as it is permitted."""
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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
