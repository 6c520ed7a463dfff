"""Settings from the environment, validated by the components that use them.

`tailrace.settings` imports no component, so it validates only numbers, switches and choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tailrace.auth.credentials import check_parameter
from tailrace.auth.jwks import check_source
from tailrace.auth.origins import Origins, check_hosts
from tailrace.auth.proxies import Proxies
from tailrace.log.quota import Quota
from tailrace.log.retention import Retention
from tailrace.settings import Settings

CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    "streams_per_prefix": Quota.parse,
    "retention": Retention.parse,
    "jwks": check_source,
    "jwt_param": check_parameter,
    "allowed_hosts": check_hosts,
    "trusted_proxies": Proxies,
    "allowed_origins": Origins,
}
"""For each setting, a function that raises `BadSetting` for an invalid value."""


def load_settings(env: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Read settings from the environment; `overrides` that are not None take precedence."""
    settings = Settings.from_env(env, **overrides)
    for name, check in CHECKS.items():
        check(getattr(settings, name))
    return settings
