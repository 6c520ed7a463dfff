"""The client imports nothing of the server, and its parts when they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tailrace.client

SERVER = {"boto3", "cryptography", "fastapi", "orjson", "uvicorn", "uvloop", "yaml"}
"""Without click and rich, which httpx imports for its own command line if there are some."""


def modules_after(line: str) -> set[str]:
    script = f"import sys\n{line}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return set(done.stdout.decode().split())


def test_the_client_imports_nothing_of_the_server() -> None:
    modules = modules_after("from tailrace.client import AsyncClient, Client, Subscription")
    assert "httpx" in modules
    assert not SERVER & modules
    ours = {name for name in modules if name.startswith("tailrace.")}
    assert {name for name in ours if not name.startswith("tailrace.client")} == set()


def test_a_name_is_imported_when_it_is_used() -> None:
    assert "httpx" not in modules_after("import tailrace.client.urls")
    assert "httpx" not in modules_after("from tailrace.client import RetryPolicy, StreamError")


def test_all_names_exist() -> None:
    assert all(getattr(tailrace.client, name) for name in tailrace.client.__all__)
    with pytest.raises(AttributeError):
        _ = tailrace.client.nothing
