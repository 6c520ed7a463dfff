"""The fixtures of tests/integration/cable."""

from __future__ import annotations

from tests.integration.cable.conftest import cable_server
from tests.integration.cable.gateway.conftest import world

__all__ = ["cable_server", "world"]
