"""`python -m bench.coldstart`: measures the CPU time of each function before its first request.

Each figure is the median over fresh interpreters that see nothing but the packaged function and its
layers. CPU time, because a cold start on Lambda is bound by it, and because others on the machine
disturb it least.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.report import machine
from devtools.cold_start import INIT, run
from devtools.processes import ROOT
from scripts.package import build

PAGE = ROOT / "docs" / "benchmarks-coldstart.md"
FACTS = ("machine", "system", "Tailrace", "date")

GOALS = {"http": 400, "live": 350}
"""The CPU time that the init of a function may take, in milliseconds."""

DEPENDENCIES = {
    "asyncio": "import asyncio",
    "ssl, with a context": "import ssl; ssl.create_default_context()",
    "orjson": "import orjson",
    "httptools": "import httptools",
    "our runtime": "import asgi_stream.runtime",
    "Mangum": "import mangum",
    "Powertools Logger and Metrics": "import aws_lambda_powertools.metrics",
    "Powertools batches": "import aws_lambda_powertools.utilities.batch",
    "Powertools Tracer with X-Ray's SDK": "import aws_lambda_powertools.tracing, aws_xray_sdk.core",
    "Tailrace: routes, rules and the DynamoDB store": (
        "import tailrace.web.asgi, tailrace.store.dynamodb.store"
    ),
    "FastAPI with pydantic": "import fastapi",
    "Tailrace's FastAPI routes": "import tailrace.api",
    "botocore with a DynamoDB client": (
        "import botocore.session; botocore.session.Session().create_client('dynamodb')"
    ),
    "boto3 with an S3 client": "import boto3; boto3.client('s3')",
}
MARKS = {
    "asyncio": "asyncio",
    "ssl, with a context": "ssl",
    "orjson": "orjson",
    "httptools": "httptools",
    "our runtime": "asgi_stream",
    "Mangum": "mangum",
    "Powertools Logger and Metrics": "aws_lambda_powertools.metrics",
    "Powertools batches": "aws_lambda_powertools.utilities.batch",
    "Powertools Tracer with X-Ray's SDK": "aws_xray_sdk",
    "Tailrace: routes, rules and the DynamoDB store": "tailrace.store.dynamodb.store",
    "FastAPI with pydantic": "fastapi",
    "Tailrace's FastAPI routes": "tailrace.api",
    "botocore with a DynamoDB client": "botocore.session",
    "boto3 with an S3 client": "boto3",
}
"""A module of each dependency, by which its import is detected."""


def median(assets: Path, function: str, statement: str, rounds: int) -> float:
    return statistics.median(run(assets, function, statement).milliseconds for _ in range(rounds))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.coldstart", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="interpreters per figure")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args(arguments)
    assets = build("host")
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "assets"
        shutil.copytree(assets, source, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        page = _page(assets, source, options.rounds)
    print(page)
    if options.write:
        PAGE.write_text(page)
        _say(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


def _page(assets: Path, source: Path, rounds: int) -> str:
    known = machine(ROOT / "node_modules", None)
    load = f"{os.getloadavg()[0]:.1f}"
    lines = [
        "# Benchmarks: cold start",
        "",
        "<!-- Written by `make bench-coldstart ARGS=--write`; do not edit. -->",
        "",
        "What a function does before its first request, in milliseconds of CPU over a bare",
        "interpreter. A function of 1 GB has about 0.6 of a processor, one of 512 MB about 0.3.",
        "",
        "|  |  |",
        "| --- | --- |",
        *(f"| {name} | {known[name]} |" for name in FACTS),
        f"| load average before | {load} |",
        "",
        "## Functions",
        "",
        "| function | with bytecode | from source | goal | of the goal |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    loaded: dict[str, frozenset[str]] = {}
    for function, statement in INIT.items():
        _say(f"function {function}")
        loaded[function] = run(assets, function, statement).modules
        compiled = median(assets, function, statement, rounds)
        plain = median(source, function, statement, rounds)
        goal = GOALS.get(function)
        shown = (f"{goal}", f"{plain / goal:.0%}") if goal else ("", "")
        lines.append(f"| {function} | {compiled:.0f} | {plain:.0f} | {' | '.join(shown)} |")
    lines += [
        "",
        "*From source* is how a package for another Python than the building machine's starts:",
        "Lambda cannot write bytecode beside it.",
        "",
        "## Dependencies",
        "",
        "Each alone in a fresh interpreter, with bytecode; what several share, such as asyncio,",
        "counts in each.",
        "",
        "| dependency | ms | loaded in the init of |",
        "| --- | ---: | --- |",
    ]
    for name, statement in DEPENDENCIES.items():
        _say(name)
        layer = "live" if name == "our runtime" else "http"
        spent = median(assets, layer, statement, rounds)
        users = [function for function, modules in loaded.items() if MARKS[name] in modules]
        lines.append(f"| {name} | {spent:.0f} | {', '.join(users) or 'none: when needed'} |")
    return "\n".join(lines) + "\n"


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
