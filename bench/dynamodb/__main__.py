"""`python -m bench.dynamodb`: what the DynamoDB store does, call by call, and what that costs."""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from urllib.parse import urlsplit

import uvloop

from bench.dynamodb.clients import costs
from bench.dynamodb.lab import Site, found_at, ministack
from bench.dynamodb.measure import FULL, QUICK, measure, say, simulated
from bench.dynamodb.report import Report, markdown
from bench.report import machine
from devtools.engines.ministack import PYTHON, Ministack
from devtools.processes import ROOT, fresh_name, stop_cleanly_when_terminated
from tailrace.aws.client.service_access import resolve_service_access
from tailrace.errors import BadSetting, StoreUnavailable
from tailrace.settings import Settings

PAGE = ROOT / "docs" / "benchmarks-dynamodb.md"
FACTS = ("machine", "system", "Tailrace", "date")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    stop_cleanly_when_terminated()
    scale = QUICK if options.quick else FULL
    load_average = os.getloadavg()[0]
    began = time.monotonic()
    # What was imported is not to be looked at again by each collection.
    gc.freeze()
    runs = []
    with ministack() as local:
        for site in _sites(options, local):
            say(f"on {site.name}")
            with found_at(site, local):
                runs.append(uvloop.run(measure(site, scale)))
    known_exactly = simulated(scale)
    say("clients")
    spent = costs(scale.calls)
    known = machine(ROOT / "node_modules", None)
    facts = {
        **{name: known[name] for name in FACTS},
        "engine": "; ".join(run.engine for run in runs),
        "boto3": metadata.version("boto3"),
        "load average before": f"{load_average:.1f}",
        "command": f"`{_command(options)}` ({(time.monotonic() - began) / 60:.1f} min)",
    }
    page = markdown(Report(facts, runs, known_exactly, scale.rounds, spent, Settings()))
    print(page)
    if options.write:
        PAGE.write_text(page)
        say(f"wrote {PAGE}")
    return 0


def _sites(options: argparse.Namespace, local: Ministack) -> Iterator[Site]:
    """The one that the user names comes first: if it does not work, that is known at once."""
    url = options.endpoint_url
    if url:
        settings = Settings(
            store="dynamodb",
            table=options.table or fresh_name("tailrace-bench"),
            bucket=options.bucket,
            create_table=options.create_table,
        )
        on_aws = not resolve_service_access(Settings(endpoint_url=url)).local
        yield Site(urlsplit(url).netloc, url, settings, on_aws, temporary=not options.table)
    yield Site(
        f"ministack {_ministack_version()}",
        local.url,
        Settings(store="dynamodb", table=fresh_name("bench")),
    )


def _ministack_version() -> str:
    script = "from importlib.metadata import version; print(version('ministack'))"
    done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _command(options: argparse.Namespace) -> str:
    """How to do this run again; the endpoint is among the engines."""
    given = ["--quick"] if options.quick else []
    given += ["--endpoint-url …"] if options.endpoint_url else []
    return " ".join(["python -m bench.dynamodb", *given])


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.dynamodb", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: few repetitions")
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name}, too")
    parser.add_argument(
        "--endpoint-url", metavar="URL", help="measure there, too: DynamoDB Local, or a region's"
    )
    parser.add_argument(
        "--table", help="the table there, kept; default a fresh one, removed afterwards"
    )
    parser.add_argument(
        "--bucket", default="", help="the bucket on AWS; without one no large bodies are measured"
    )
    parser.add_argument(
        "--create-table", action="store_true", help="create table and bucket on AWS when missing"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BadSetting, StoreUnavailable) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("stopped")
