"""Aviso: notifications with typed identifiers, watched and replayed by filters."""

from typing import Final

PREFIX: Final = "/api/v1/"
READY: Final = "/ready"
DOCUMENT: Final = "/api-docs/openapi.json"
