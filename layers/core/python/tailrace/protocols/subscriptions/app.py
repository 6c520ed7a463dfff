"""The subscriptions of a server, put together: store, keys, sender, endpoints and runner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tailrace.auth.authorizer import PolicyProvider
from tailrace.auth.origins import LocalHosts
from tailrace.clock import Clock
from tailrace.protocols.subscriptions.key_file import KeyFile
from tailrace.protocols.subscriptions.routes import SubscriptionRoutes
from tailrace.protocols.subscriptions.runner import SubscriptionRunner
from tailrace.protocols.subscriptions.service import SubscriptionService
from tailrace.protocols.subscriptions.signing import KeySigner, KeySource
from tailrace.protocols.subscriptions.store import SubscriptionStore
from tailrace.protocols.subscriptions.webhook_sender import WebhookSender
from tailrace.settings import Settings
from tailrace.store.base import Store
from tailrace.streams import Streams
from tailrace.web.limiter import Limiter
from tailrace.web.urls import StreamUrls


class SubscriptionApp:
    def __init__(
        self,
        streams: Streams,
        settings: Settings,
        urls: StreamUrls,
        provider: PolicyProvider,
        limiter: Limiter,
        clock: Clock,
        hosts: LocalHosts | None,
    ) -> None:
        """`hosts`: not None if only loopback protects the server."""
        signer = KeySigner(choose_keys(settings))
        loopback = settings.webhook_loopback or hosts is not None
        self.service = SubscriptionService(
            streams,
            choose_store(streams.store, settings),
            WebhookSender(allow_loopback=loopback),
            signer,
            clock,
        )
        self.routes = SubscriptionRoutes(
            self.service, settings, urls, provider, signer, limiter, hosts, clock
        )
        self._clock = clock
        self._runner: SubscriptionRunner | None = None

    async def start(self, *, runs: bool) -> None:
        """Begin to serve subscriptions; the streams' store is open. `runs`: whether to do what is
        due, too."""
        await self.service.store.open()
        if runs:
            self._runner = SubscriptionRunner(self.service, self._clock)
            self._runner.start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.stop()


def choose_keys(settings: Settings) -> KeySource:
    """Return the keys of subscriptions: those in the data directory, or in a shared secret.

    Raises UnreadableData if the file with the keys is damaged, or others can read it."""
    if not settings.subscription_keys:
        file = KeyFile(Path(settings.data))
        if file.exists():
            file.read()
        return file
    from tailrace.protocols.subscriptions.key_secret import KeySecret

    return KeySecret(settings)


def choose_store(store: Store[Any], settings: Settings) -> SubscriptionStore:
    """Return the store of subscriptions that belongs to a store of streams."""
    if settings.store == "dynamodb":
        from tailrace.protocols.subscriptions.dynamodb_store import DynamoSubscriptions
        from tailrace.store.dynamodb.store import DynamoStore

        assert isinstance(store, DynamoStore)
        return DynamoSubscriptions(store)
    from tailrace.protocols.subscriptions.sqlite_store import SqliteSubscriptions
    from tailrace.store.sqlite.store import SqliteStore

    assert isinstance(store, SqliteStore)
    return SqliteSubscriptions(store)
