"""Every flow of the console in a real browser, on a server and through the local AWS."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from devtools.engines.ministack import Ministack
from devtools.local_aws.stack import AwsLocal, Missing
from devtools.node import run_vitest
from devtools.processes import ROOT
from devtools.server import Server
from tailrace.auth.jws import sign_token
from tailrace.auth.signed_names import sign
from tests.conftest import fail_with
from tests.support.console.chromium import find_or_skip

HERE = Path(__file__).parent
SCREENS = ROOT / "build" / "console"
"""Where screenshots are left for people to look at."""

SECRET = "0f" * 32
SIGNED_STREAM = "signed/room"


def drive(flows: str, folder: Path, url: str, **env: str) -> None:
    """Run the tests of a folder in the browser."""
    variables = {"SERVER_URL": url, "CHROMIUM": find_or_skip(), **env}
    tests = run_vitest(HERE / flows, folder / "report.json", variables)
    fail_with(test for test in tests if test.status != "passed")
    assert tests


def credentials() -> dict[str, str]:
    def token(scope: str, streams: str) -> str:
        claims = {"scope": scope, "streams": streams, "exp": int(time.time()) + 3600}
        return sign_token(claims, SECRET.encode(), "HS256")

    return {
        "ADMIN": token("admin", "**"),
        "READER": token("read", "room/**"),
        "SIGNED": sign(SIGNED_STREAM, SECRET),
        "SIGNED_STREAM": SIGNED_STREAM,
    }


def test_every_flow_on_a_server(tmp_path: Path) -> None:
    find_or_skip()
    with Server(tmp_path / "data", {"TAILRACE_PRESENCE_TTL": "1"}) as server:
        drive("flows", tmp_path, server.url)


def test_it_is_accessible_and_fits_in_every_theme_and_size(tmp_path: Path) -> None:
    find_or_skip()
    SCREENS.mkdir(parents=True, exist_ok=True)
    with Server(tmp_path / "data") as server:
        drive("looks", tmp_path, server.url, SCREENS=str(SCREENS))


def test_credentials_on_a_server(tmp_path: Path) -> None:
    find_or_skip()
    with Server(tmp_path / "data", {"TAILRACE_SECRET": SECRET}) as server:
        drive("access", tmp_path, server.url, **credentials())


def test_a_tail_survives_restarts(tmp_path: Path) -> None:
    find_or_skip()
    control = tmp_path / "control"
    settings = {"TAILRACE_SSE_LIFETIME": "3"}
    with Server(tmp_path / "data", settings) as server, ThreadPoolExecutor(1) as pool:
        driving = pool.submit(drive, "reconnect", tmp_path, server.url, CONTROL=str(control))
        while not driving.done():
            if control.exists():
                {"stop": server.stop, "start": server.start}[control.read_text()]()
                control.unlink()
            time.sleep(0.05)
        driving.result()


def test_every_flow_on_aws(ministack: Ministack, tmp_path: Path) -> None:
    find_or_skip()
    try:
        with AwsLocal(ministack=ministack, variant="local-open") as stack:
            drive("flows", tmp_path, stack.url)
    except Missing as missing:
        pytest.skip(str(missing))


def test_credentials_on_aws(ministack: Ministack, tmp_path: Path) -> None:
    find_or_skip()
    access = {"secret": SECRET}
    try:
        with AwsLocal(ministack=ministack, variant="local-closed", access=access) as stack:
            drive("access", tmp_path, stack.url, **credentials())
    except Missing as missing:
        pytest.skip(str(missing))
