"""Measures the init phase of a packaged function, in a fresh interpreter with only its layers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from devtools.processes import ENGINES
from scripts.package import LAYERS

PYTHON = ENGINES / "lambda" / "bin" / "python"

INIT = {
    "http": "import handler",
    "live": "import asgi_stream.runtime, handler; handler.app.start()",
    "cable": "import handler",
    "heartbeat": "import handler",
    "dispatch": "import handler",
    "purge": "import handler",
    "webhooks": "import handler",
    "rotate_secret": "import handler",
    "edge_keys": "import handler",
}
"""The init code of each function; that of `live` includes its runtime, which is ours."""

CHILD = """
import json, sys, time
started = time.process_time()
{statement}
print(json.dumps([(time.process_time() - started) * 1000, sorted(sys.modules)]))
"""


class Init(NamedTuple):
    milliseconds: float
    modules: frozenset[str]


def run(assets: Path, function: str, statement: str) -> Init:
    """Run a statement in a fresh interpreter with the environment of a function."""
    layers = [assets / "layers" / layer / "python" for layer in LAYERS[function]]
    task = assets / "functions" / function
    process = subprocess.run(
        [PYTHON, "-B", "-c", CHILD.format(statement=statement)],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(map(str, [task, *layers])),
            "LAMBDA_TASK_ROOT": str(task),
            "AWS_LAMBDA_RUNTIME_API": "127.0.0.1:9",
            "AWS_LAMBDA_FUNCTION_NAME": function,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
            "TAILRACE_TABLE": "tailrace",
            "TAILRACE_BUCKET": "tailrace",
            "TAILRACE_ORIGIN_SECRET": "arn:none",
            "TAILRACE_ACCESS_SECRET": "arn:none",
            "TAILRACE_EDGE_KEYS": "arn:none",
            "TAILRACE_DISTRIBUTION": "none",
            "TAILRACE_CABLE_ENDPOINT": "https://none/cable",
            "TAILRACE_HEARTBEAT": "none",
        },
        check=True,
        capture_output=True,
        text=True,
    )
    milliseconds, modules = json.loads(process.stdout.splitlines()[-1])
    return Init(milliseconds, frozenset(modules))
