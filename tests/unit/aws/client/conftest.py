from __future__ import annotations

from tests.support.dynamo import shared_loader

__all__ = ["shared_loader"]
