"""Has the viewer-request function and the origin judge the same requests, each for itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from devtools.node import find_node
from devtools.tokens import NOW
from devtools.viewer_function.requests import AUTHORIZERS, Shown
from tailrace.auth.authorizer import Authorizer, Operation
from tailrace.auth.credentials import Credentials, parse_credentials
from tailrace.aws.edge.key_document import build_entries
from tailrace.errors import TailraceError
from tailrace.web.urls import StreamUrls

ORIGIN_SECRET: Final = "what CloudFront shows to the functions"
JUDGE: Final = Path(__file__).with_name("judge.mjs")
JUDGE_SECONDS: Final = 600

WAYS: Final = {"bearer", "signed", "public"}
"""The reasons for which the origin allows a read."""

URLS: Final = StreamUrls("/ds")

Case = tuple[dict[str, Any], dict[str, Any]]
"""A request, and what the viewer function made of it."""


def run_viewer_function(source: str, shown: Iterable[Shown], folder: Path) -> list[Case]:
    """Run the function on requests; `source` is its code as it is deployed."""
    cases = [request.as_case() for request in shown]
    given = {
        "code": source,
        "now": NOW,
        "stores": [build_entries(settings, ORIGIN_SECRET.encode()) for settings in AUTHORIZERS],
        "cases": cases,
    }
    file = folder / "cases.json"
    file.write_text(json.dumps(given))
    command: list[str | Path] = [find_node(), JUDGE, file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=JUDGE_SECONDS)
    assert done.returncode == 0, done.stderr
    return list(zip(cases, json.loads(done.stdout), strict=True))


def ask_origin(case: Mapping[str, Any]) -> str:
    """By what the origin lets a request pass, or the name of the error that it gets."""
    query: dict[str, list[str]] = {}
    for name, value in parse_qsl(case["query"], keep_blank_values=True):
        query.setdefault(name, []).append(value)
    headers = [(name.encode(), value.encode("latin-1")) for name, value in case["headers"]]
    credentials: Credentials = parse_credentials(
        headers, query, AUTHORIZERS[case["store"]].jwt_param
    )
    authorizer = Authorizer(AUTHORIZERS[case["store"]])
    try:
        return authorizer.authorize(
            Operation.READ, URLS.parse(case["path"]), credentials, NOW
        ).reason
    except TailraceError as error:
        return type(error).__name__
