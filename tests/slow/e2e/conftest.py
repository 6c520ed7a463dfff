"""The local AWS stacks of tests/e2e."""

from __future__ import annotations

from tests.e2e.conftest import aws_local, closed_local

__all__ = ["aws_local", "closed_local"]
