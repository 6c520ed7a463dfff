"""Sleeps of the test's own thread, replaced: those of threads beside it are left alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest


def replace_sleep(monkeypatch: pytest.MonkeyPatch, instead: Callable[[float], None]) -> None:
    sleep, own = time.sleep, threading.get_ident()

    def choose(seconds: float) -> None:
        (instead if threading.get_ident() == own else sleep)(seconds)

    monkeypatch.setattr(time, "sleep", choose)
