"""The constructs of the service that alarms, the dashboard and the stack's outputs are about."""

from __future__ import annotations

from dataclasses import dataclass

from infra.containers import Containers
from infra.dispatch import Dispatch, Purge
from infra.distribution import Distribution
from infra.edge_keys import EdgeKeys
from infra.history_jobs import HistoryJobs
from infra.http_functions import HttpFunctions
from infra.rotation import OriginSecretRotation
from infra.subscriptions import Subscriptions
from infra.websocket_functions import WebSocketFunctions


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """None: the plan leaves it out."""

    http_functions: HttpFunctions
    websocket_functions: WebSocketFunctions | None
    containers: Containers | None
    distribution: Distribution
    edge_keys: EdgeKeys | None
    subscriptions: Subscriptions | None
    dispatch: Dispatch | None
    purge: Purge
    rotation: OriginSecretRotation
    history_jobs: HistoryJobs | None
