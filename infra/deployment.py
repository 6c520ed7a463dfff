"""The values that the constructs of one deployment share, passed to each of them as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.assets import Assets
from infra.secrets import AccessControl, OriginSecret
from infra.stage import Plan
from infra.storage import StorageStack
from infra.websocket_api import WebSocketApi

if TYPE_CHECKING:
    from infra.subscriptions import SubscriptionKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    plan: Plan
    assets: Assets
    storage: StorageStack
    origin_secret: OriginSecret
    access: AccessControl | None
    """None: access is open, and there is nothing to verify credentials with."""
    websocket_api: WebSocketApi | None
    """None: Action Cable is off."""
    subscription_keys: SubscriptionKeys | None
    """None: subscriptions are off."""
    firewall: str | None
    """The ARN of the web ACL; None: the firewall is off."""

    @property
    def access_secret(self) -> str:
        """The value of TAILRACE_ACCESS_SECRET: the secret's ARN, or nothing if access is open."""
        return "" if self.access is None else self.access.secret.id

    @property
    def secret_arns(self) -> list[str]:
        """The secrets that a function needs to authorize requests."""
        secrets = [self.origin_secret.secret_arn]
        return secrets if self.access is None else [*secrets, self.access.secret.secret_arn]
