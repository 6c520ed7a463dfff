from __future__ import annotations

from tests.support.dynamo import patience, shared_loader

__all__ = ["patience", "shared_loader"]
