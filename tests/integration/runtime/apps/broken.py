"""A module that fails when it is imported."""

from __future__ import annotations

raise KeyError("NO_SUCH_SETTING")
