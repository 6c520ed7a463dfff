"""The commands in the OpenAPI document work."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from devtools.server import Server
from tailrace import docs
from tailrace.settings import Settings


def test_the_commands_of_the_openapi_document_work(tmp_path: Path) -> None:
    document = docs.describe(Settings())
    guide = re.findall(
        r"^```\n(.*?)^```$", document["info"]["description"], re.DOTALL | re.MULTILINE
    )
    operations = [
        operation
        for path, item in document["paths"].items()
        if not path.startswith("/ds/")  # the same commands again
        for method, operation in item.items()
        if method != "parameters"
    ]
    quick = {"TAILRACE_LONG_POLL_TIMEOUT": "0.1", "TAILRACE_SSE_LIFETIME": "0.1"}
    with Server(tmp_path / "data", quick) as server:
        for script in guide:
            output = _run(script, server)
            assert '[{"text":"hello"}]' in output
            assert "event: control" in output
        streams = "/v1/stream/"
        for operation in operations:
            for sample in operation.get("x-code-samples", []):
                # The guide has already created streams of these names.
                script = sample["source"].replace(streams, f"{streams}samples/")
                status = re.match(r"HTTP/1.1 (\d+)", _run(script, server))
                assert status is None or status[1] in operation["responses"]
                assert status is None or status[1] < "400"


def _run(script: str, server: Server) -> str:
    done = subprocess.run(
        ["sh", "-ec", script.replace(docs.EXAMPLE_URL, server.url)],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
