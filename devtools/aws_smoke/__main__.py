"""`scripts/aws-smoke`: deploys a stage to an AWS account, measures it, and destroys it again."""

from __future__ import annotations

import argparse
import re
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from devtools import cdk
from devtools.aws_smoke.checks import CHECKS, NAMES, Check, run
from devtools.aws_smoke.findings import Finding, NotMeasured, Outcome, Report
from devtools.aws_smoke.stacks import Failed, NotReady, Stacks
from devtools.aws_smoke.target import Target
from devtools.local_aws.stack import AwsLocal, Missing
from devtools.processes import stop_cleanly_when_terminated

STAGE: Final = re.compile(r"smoke[a-z0-9]{0,12}")
"""Stages that `infra.stage` keeps for this command: it cannot destroy any other."""
DEPLOY_MINUTES: Final = 12
PROBE_MINUTES: Final = 5
DESTROY_MINUTES: Final = 12
HOUR_DOLLARS: Final = 0.05
"""The price of the deployment for an hour: the firewall and the snapshot, mostly."""
LONG_POLL_SECONDS: Final = "2"
"""On the local AWS, where a long wait proves nothing."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse(arguments)
    if given.list:
        print(listing())
        return 0
    stop_cleanly_when_terminated()
    checks = [check for check in CHECKS if check.name in given.only]
    try:
        report = measure_here(checks) if given.local else measure_account(given, checks)
    except (NotReady, Missing, cdk.NotInstalled, Failed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if report is None:
        return 0
    print(report.to_json() if given.json else report.to_text())
    return 130 if report.interrupted else int(report.failed)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/aws-smoke", description=__doc__)
    parser.add_argument("--list", action="store_true", help="show the checks and what they cost")
    parser.add_argument("--stage", default="smoke", help="smoke, or smoke with a suffix")
    parser.add_argument("--region", help="the region; by default that of the AWS configuration")
    parser.add_argument(
        *("-c", "--context"),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a switch of the deployment, as in docs/deploying.md",
    )
    parser.add_argument("--only", default=",".join(NAMES), metavar="CHECK,…", help="some checks")
    parser.add_argument("--keep", action="store_true", help="do not destroy the deployment")
    parser.add_argument("--destroy", action="store_true", help="only destroy an earlier deployment")
    parser.add_argument("--local", action="store_true", help="measure the local AWS, for free")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    given = parser.parse_args(arguments)
    given.only = given.only.split(",")
    if unknown := sorted(set(given.only) - set(NAMES)):
        parser.error(f"unknown: {', '.join(unknown)}; the checks are {', '.join(NAMES)}")
    if not STAGE.fullmatch(given.stage):
        parser.error("--stage must be smoke, or smoke with letters and digits: it is destroyed")
    for switch in given.context:
        if "=" not in switch:
            parser.error(f"-c {switch}: write a switch as name=value")
        if switch.partition("=")[0] in ("stage", "region"):
            parser.error(f"-c {switch}: use --{switch.partition('=')[0]}")
    return given


def listing() -> str:
    """The checks, how long they take, and what they cost."""
    lines = [f"{'check':14} {'minutes':>7}  {'at most':>7}  question"]
    lines += [
        f"{check.name:14} {check.minutes:7.1f}  ${check.dollars:<6.3f}  {check.question}"
        for check in CHECKS
    ]
    minutes = DEPLOY_MINUTES + PROBE_MINUTES + DESTROY_MINUTES
    total = minutes + sum(check.minutes for check in CHECKS)
    dollars = sum(check.dollars for check in CHECKS) + HOUR_DOLLARS * total / 60
    lines += [
        "",
        f"Deploying and destroying takes about {minutes} minutes.",
        f"All in all: about {total:.0f} minutes and ${dollars:.2f}, estimated from list prices.",
    ]
    return "\n".join(lines)


def measure_here(checks: Sequence[Check]) -> Report:
    """Measure the local AWS."""
    secret = secrets.token_hex(32)
    variables = {"TAILRACE_LONG_POLL_TIMEOUT": LONG_POLL_SECONDS}
    with AwsLocal(access={"secret": secret}, variables=variables, say=say) as stack:
        return measure(Target.from_local(stack, secret), checks)


def measure_account(given: argparse.Namespace, checks: Sequence[Check]) -> Report | None:
    """Deploy, measure, and destroy; None if there was nothing to measure."""
    with TemporaryDirectory(prefix="tailrace-smoke-") as directory:
        stacks = Stacks(given.stage, given.region, Path(directory), context=given.context, say=say)
        if given.destroy:
            stacks.synthesise()
            left = _destroy(stacks)
            return Report("an earlier deployment", {}, left) if left else None
        stacks.check()
        say(f"Deploying the stage {given.stage} to {stacks.caller} …")
        report = Report(stacks.caller, {})
        try:
            report = _deploy_and_measure(stacks, checks)
        except KeyboardInterrupt:
            say("Interrupted.")
            report = _unmeasured(stacks.caller, checks, "interrupted", interrupted=True)
        except (Failed, NotMeasured, ClientError, BotoCoreError) as error:
            say(f"error: {error}")
            report = _unmeasured(stacks.caller, checks, "the deployment failed", error=str(error))
        finally:
            left = [] if given.keep else _destroy(stacks)
            for each in left:
                say(f"LEFT IN THE ACCOUNT: {each}")
        if given.keep:
            say(f"Kept. To remove it: scripts/aws-smoke --destroy --stage {given.stage}")
        return replace(report, left=left)


def _deploy_and_measure(stacks: Stacks, checks: Sequence[Check]) -> Report:
    stacks.deploy()
    probe = None
    if any(check.needs_probe for check in checks):
        say("Deploying a second distribution …")
        try:
            probe = stacks.deploy_probe()
        except (Failed, NotMeasured) as error:
            say(f"Without it: {error}")
    return measure(stacks.target(probe), checks)


def measure(target: Target, checks: Sequence[Check]) -> Report:
    """Run the checks; after Ctrl-C the report has those that were complete."""
    findings: dict[str, Finding] = {}
    try:
        for number, check in enumerate(checks, 1):
            say(f"[{number}/{len(checks)}] {check.name}: {check.question}")
            begun = time.monotonic()
            findings[check.name] = finding = run(check, target)
            say(f"    {finding.outcome.value} after {time.monotonic() - begun:.0f} s")
    except KeyboardInterrupt:
        say("Interrupted.")
        rest = _unmeasured(target.name, checks, "interrupted").findings
        return Report(target.name, {**rest, **findings}, interrupted=True)
    return Report(target.name, findings)


def _destroy(stacks: Stacks) -> list[str]:
    """Destroy everything; returns what is left, also if this is interrupted."""
    say("Destroying what was deployed …")
    try:
        return stacks.destroy()
    except KeyboardInterrupt:
        say("Interrupted.")
    except (NotMeasured, ClientError, BotoCoreError, OSError) as error:
        say(f"error: {error}")
    try:
        return stacks.existing()
    except (ClientError, BotoCoreError) as error:
        return [f"unknown, since the stacks cannot be listed: {error}"]


def _unmeasured(
    target: str,
    checks: Sequence[Check],
    reason: str,
    *,
    interrupted: bool = False,
    error: str = "",
) -> Report:
    findings = {check.name: Finding(Outcome.NOT_MEASURED, reason) for check in checks}
    return Report(target, findings, interrupted=interrupted, error=error)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
