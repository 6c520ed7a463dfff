"""The browser in which tests use the console."""

from __future__ import annotations

import pytest

from devtools.browser import NAMES, find_browser


def find_or_skip() -> str:
    """Return the program of a browser, or skip the test."""
    program = find_browser()
    if program is None:
        pytest.skip(f"no browser is installed: none of {', '.join(NAMES)} is in PATH")
    return program
