"""The official conformance suite of the protocol, against the server as a real process.

`tests/e2e` runs it through the whole AWS path, `tests/slow` with other modes of the stores.
"""

from __future__ import annotations

from pathlib import Path

from devtools.server import Server
from tests.support.conformance.official import check


def test_official_suite_passes_on_sqlite(own_server: Server, tmp_path: Path) -> None:
    check(own_server, tmp_path)


def test_official_suite_passes_on_dynamodb(dynamodb_server: Server, tmp_path: Path) -> None:
    check(dynamodb_server, tmp_path)
