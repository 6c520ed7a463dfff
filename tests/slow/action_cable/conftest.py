"""The fixtures of tests/integration/action_cable."""

from __future__ import annotations

from tests.integration.action_cable.api_gateway.conftest import world
from tests.integration.action_cable.conftest import cable_server

__all__ = ["cable_server", "world"]
