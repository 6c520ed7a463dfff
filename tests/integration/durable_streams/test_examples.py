"""The commands that the documents show do what they say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from devtools.server import Server
from tailrace.app import Application
from tailrace.protocols.durable_streams.openapi.guide import EXAMPLE_URL
from tailrace.settings import Settings


def test_the_commands_of_the_openapi_document_work(tmp_path: Path) -> None:
    document: dict[str, Any] = Application(Settings()).api.openapi()  # type: ignore[attr-defined]
    guide = re.findall(
        r"^```\n(.*?)^```$", document["info"]["description"], re.DOTALL | re.MULTILINE
    )
    operations = [
        operation
        for item in document["paths"].values()
        for method, operation in item.items()
        if method != "parameters"
    ]
    quick = {"TAILRACE_LONG_POLL_TIMEOUT": "0.1", "TAILRACE_SSE_LIFETIME": "0.1"}
    with Server(tmp_path / "data", quick) as server:
        for script in guide:
            shown = _run(script, server)
            assert '[{"text":"hello"}]' in shown
            assert "event: control" in shown
        streams = "/v1/stream/"
        for operation in operations:
            for sample in operation.get("x-codeSamples", []):
                # The guide has used its names already.
                script = sample["source"].replace(streams, f"{streams}samples/")
                status = re.match(r"HTTP/1.1 (\d+)", _run(script, server))
                assert status is None or status[1] in operation["responses"]
                assert status is None or status[1] < "400"


def _run(script: str, server: Server) -> str:
    done = subprocess.run(
        ["sh", "-ec", script.replace(EXAMPLE_URL, server.url)],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
