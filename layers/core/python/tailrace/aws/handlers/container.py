"""The application as a container runs it: behind the origin guard, with metrics in its log."""

from __future__ import annotations

import os
from typing import Final

from tailrace.app import Application
from tailrace.aws.edge.origin_guard import OriginGuard, create_origin_secret, guard_requests
from tailrace.aws.runtime.container_metrics import ContainerMetrics
from tailrace.aws.runtime.policy_provider import create_policy_provider
from tailrace.settings import Settings
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.web.asgi import App
from tailrace.web.uvicorn.exchange import FastLane

HEALTH: Final = "/health"
"""The path that the load balancer reads, which does not know the origin secret."""


class Container:
    """The parts of a server that accepts requests from CloudFront only."""

    def __init__(self, settings: Settings) -> None:
        self.metrics = ContainerMetrics(os.environ.get("POWERTOOLS_SERVICE_NAME", "tailrace"))
        self._secret = create_origin_secret(settings)
        store = None
        if settings.store == "dynamodb":
            # The stack has created the table.
            store = DynamoStore(settings, meter=self.metrics.record_call, check_table=False)
            self.metrics.outcomes = store.outcomes
        self.application = Application(
            settings,
            store,
            provider=create_policy_provider(settings) if settings.access_secret else None,
            compresses=False,  # CloudFront does.
        )

    def asgi(self) -> App:
        return OriginGuard(self.application, self._secret, unguarded=[HEALTH])

    def fast_lane(self) -> FastLane:
        lane = self.application.fast_lane()
        # Whatever is answered without a task would be answered without the guard, which may have
        # to wait until the secret has been read.
        return FastLane(
            lane.prefixes,
            guard_requests(self._secret, lane.respond),
            lane.memory,
            lane.max_body_bytes,
            lane.origins,
            lane.proxies,
        )
