"""Aviso: notifications about data, with typed identifiers, live and replayed, by filter."""

from typing import Final

PREFIX: Final = "/api/v1/"
READY: Final = "/ready"
DOCUMENT: Final = "/api-docs/openapi.json"
HEALTH: Final = "/health"
"""The health of the whole server, answered as aviso-server does."""
