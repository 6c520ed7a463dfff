"""Synthesises the CloudFormation templates for tests and the local AWS to `build/templates`.

`python -m devtools.templates [variant ...]` synthesises the variants whose inputs have changed, by
default all of them. `folder` does so for one and returns its path. A single child process
synthesises all variants: starting the CDK takes most of the time, and a crash of jsii, the CDK's
bridge to Node, must not end the caller.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from devtools.processes import ROOT
from scripts import package
from scripts.package import Platform
from scripts.package_glue import NotBuilt
from scripts.package_sizes import TooLarge
from tailrace import console

PLACE: Final = ROOT / "build" / "templates"
STAMP: Final = ".stamp"
_CONSOLE: Final = Path(console.__file__).parent
CHECKED: Final[dict[str, dict[str, str]]] = {
    "dev": {"stage": "dev"},
    "prod": {"stage": "prod"},
    "afar": {
        "stage": "prod",
        "region": "eu-west-3",
        "read_limit": "0",
        "domain": "streams.example.org",
        "certificate_arn": "arn:aws:acm:us-east-1:123456789012:certificate/0a1b",
        "addresses": "203.0.113.0/24,2001:db8::/32",
        "alarm_email": "somebody@example.org",
        "allowed_origins": "https://app.example.org,*.staff.example.org",
        "ds_path": "/rooms",
        "history_workers": "5",
        "compact_schedule": "cron(0 0/6 * * ? *)",
        "sweep_dry_run": "true",
        "retention": "chat/**=30d,1GB; **=forever",
        "ping_interval": "30",
        "turbo_streams": "false",
        "cable_ready": "true",
        "streams_whisper": "true",
        "streams_presence": "false",
        "cable_ttl": "86400",
        "aviso_schema": "s3://schemas.example.org/aviso/types.yaml",
        "aviso_admin_roles": "ops=admin,lead; lab=*",
        "sse": "shared",
        "long_poll_timeout": "116",
    },
    "containers": {"stage": "prod", "live": "containers"},
    "contained": {
        "access": "open",
        "firewall": "false",
        "live": "containers",
        "writes": "containers",
        "cable": "containers",
        "container_cpu": "1024",
        "containers_min": "1",
        "containers_max": "3",
        "zones": "use1-az1,use1-az2",
        "region": "us-east-1",
        "sse": "shared",
        "ping_interval": "30",
        "history": "false",
    },
    "bare": {
        "access": "open",
        "firewall": "false",
        "snap_start": "false",
        "origin_shield": "off",
        "rotation_days": "0",
        "http_concurrency": "0",
        "wait_concurrency": "0",
        "live_concurrency": "0",
        "long_poll_timeout": "20",
        "poll_fastest": "0.05",
        "poll_slowest": "2",
        "history": "false",
        "cable": "false",
        "subscriptions": "false",
        "ds_path": "",
        "events": "false",
        "aviso": "false",
    },
}
"""Variants for the tests of the stacks. Together they use every switch, and cdk-nag checks the
security rules on each of them."""

LOCAL: Final = {"stage": "dev", "platform": "host", "firewall": "false", "console": "true"}
BRIEF: Final = {**LOCAL, "long_poll_timeout": "2"}

CONTAINERS: Final = {"live": "containers"}

VARIANTS: Final[dict[str, dict[str, str]]] = {
    **CHECKED,
    "local-open": {**LOCAL, "access": "open"},
    "local-closed": {**LOCAL, "access": "closed"},
    "local-open-brief": {**BRIEF, "access": "open"},
    "local-closed-brief": {**BRIEF, "access": "closed"},
    "local-open-containers": {**LOCAL, **CONTAINERS, "access": "open"},
    "local-closed-containers": {**LOCAL, **CONTAINERS, "access": "closed"},
    "local-open-brief-containers": {**BRIEF, **CONTAINERS, "access": "open"},
    "local-closed-brief-contained": {
        **BRIEF,
        **CONTAINERS,
        "writes": "containers",
        "cable": "containers",
        "access": "closed",
    },
    "local-open-shared": {**BRIEF, "access": "open", "sse": "shared"},
}
"""The switches of each variant. The local AWS uses packages built for this machine; in its brief
variants tests need not wait long for the end of a long-poll."""

QUIET: Final = {
    "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1",
    "JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION": "1",
}


class NotSynthesised(Exception):
    """A variant could not be synthesised; the message has the output of the process."""


def folder(variant: str) -> Path:
    """The cloud assembly of a variant, synthesised first if it is outdated."""
    update([variant])
    return PLACE / variant


def update(variants: Iterable[str]) -> list[str]:
    """Bring variants up to date; returns those that were synthesised."""
    digests = {variant: _digest(variant) for variant in variants}
    if not _outdated(digests):
        return []
    PLACE.mkdir(parents=True, exist_ok=True)
    with _hold_lock():
        # Another process may have synthesised some of them while this one waited for the lock.
        outdated = _outdated(digests)
        if outdated:
            _run(outdated)
        for variant in outdated:
            (PLACE / variant / STAMP).write_text(digests[variant])
    return outdated


def _outdated(digests: Mapping[str, str]) -> list[str]:
    stamps = {variant: PLACE / variant / STAMP for variant in digests}
    return [
        variant
        for variant, stamp in stamps.items()
        if not stamp.exists() or stamp.read_text() != digests[variant]
    ]


def _run(variants: list[str]) -> None:
    for variant in variants:
        shutil.rmtree(PLACE / variant, ignore_errors=True)
    process = subprocess.run(
        [sys.executable, "-m", "devtools.templates", "--here", *variants],
        env=_environment(),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if process.returncode:
        raise NotSynthesised(f"the stacks cannot be synthesised:\n{process.stdout}")


def _environment() -> dict[str, str]:
    """The environment without the account and region that the CDK's command line sets."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CDK_")}
    return {**environment, **QUIET}


def _digest(variant: str) -> str:
    """A digest of all inputs of a variant."""
    platform: Platform = "host" if VARIANTS[variant].get("platform") == "host" else "lambda"
    assets = package.build(platform) / ".stamp"
    files = [
        *ROOT.glob("infra/**/*"),
        *_CONSOLE.glob("**/*"),
        *ROOT.glob("scripts/package*.py"),
        Path(__file__),
    ]
    files += [ROOT / name for name in ("cdk.json", "requirements/dev.txt")]
    whole = hashlib.sha256(json.dumps([VARIANTS[variant], sys.version]).encode())
    for file in [*sorted(files), assets]:
        if file.is_file() and "__pycache__" not in file.parts:
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            whole.update(f"{file.relative_to(ROOT)} {content}\n".encode())
    return whole.hexdigest()


@contextmanager
def _hold_lock() -> Iterator[None]:
    with (PLACE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _synthesise(variant: str) -> None:
    """Synthesise in this process. Findings of the security rules are left to the tests."""
    import aws_cdk as cdk
    from cdk_nag import AwsSolutionsChecks

    from infra.app import build

    # Nothing is uploaded: the templates only need the paths of the assets.
    context: dict[str, Any] = {
        "aws:cdk:disable-asset-staging": True,
        # As the CDK's command line does: by this metadata `sam local invoke` finds the code.
        "aws:cdk:enable-asset-metadata": True,
        **VARIANTS[variant],
    }
    app = build(cdk.App(context=context, outdir=str(PLACE / variant)))
    if variant in CHECKED:
        cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    try:
        app.synth()
    except RuntimeError as error:
        if variant not in CHECKED or "ValidationFailed" not in str(error):
            raise


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="devtools.templates", description="Synthesises the stacks that the tests read."
    )
    parser.add_argument("variants", nargs="*", metavar="variant", help=", ".join(VARIANTS))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    variants = arguments.variants or list(VARIANTS)
    for name in variants:
        if name not in VARIANTS:
            parser.error(f"unknown variant {name!r}; the variants are {', '.join(VARIANTS)}")
    if arguments.here:
        for name in variants:
            _synthesise(name)
        return
    try:
        synthesised = update(variants)
    except (NotSynthesised, package.NotInstalled, NotBuilt, TooLarge) as failure:
        raise SystemExit(str(failure)) from failure
    print(f"synthesised: {', '.join(synthesised) or 'nothing, all are up to date'}")


if __name__ == "__main__":
    main()
