"""The stacks of a stage in a real account: deployed, read and destroyed with the CDK."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from devtools import cdk
from devtools.aws_smoke.findings import NotMeasured
from devtools.aws_smoke.target import Target, first_secret
from devtools.local_aws.stack import URLS
from devtools.processes import ROOT

EDGE_REGION: Final = "us-east-1"
BOOTSTRAP: Final = "/cdk-bootstrap/hnb659fds/version"
"""The parameter that `cdk bootstrap` creates."""
PROBE_APP: Final = f"{shlex.quote(sys.executable)} -m devtools.aws_smoke.probe_app"
ATTEMPTS: Final = 3
PAUSE: Final = 20.0
"""Between two attempts to destroy: a stack may first have to end what it does."""
TICK: Final = 60.0
"""How often a long step says that it goes on, in seconds."""
SHOWN: Final = 3_000
"""Characters of a failed command's output."""


class NotReady(Exception):
    """The account cannot take the deployment; the message says what to do."""


class Failed(Exception):
    """The CDK's command line failed; the message has the end of its output."""


class Stacks:
    """Deploys a stage to an account and destroys it again. It is the `Account` of a target."""

    def __init__(
        self,
        stage: str,
        region: str | None,
        directory: Path,
        *,
        context: Sequence[str] = (),
        say: Callable[[str], None],
    ) -> None:
        """`context`: switches of the deployment, as `name=value`."""
        # boto3 reads only AWS_DEFAULT_REGION, other tools of AWS both.
        self._session = boto3.Session(region_name=region or os.environ.get("AWS_REGION"))
        self._directory = directory
        self._context = [*context, f"stage={stage}"]
        self._say = say
        self._outputs: dict[str, str] = {}
        name = f"tailrace-{stage}"
        self._names = {
            f"{name}-probe": region,
            name: region,
            f"{name}-firewall": EDGE_REGION,
            f"{name}-storage": region,
        }
        self._service, self._probe = name, f"{name}-probe"
        self.caller = ""

    @property
    def region(self) -> str:
        if self._session.region_name is None:
            raise NotReady("no region: pass --region, or set AWS_REGION")
        return str(self._session.region_name)

    def client(self, service: str, region: str | None = None) -> Any:
        return self._session.client(service, region_name=region or self.region)

    def output(self, name: str) -> str:
        if name not in self._outputs:
            raise NotMeasured(f"the stacks have no output {name}")
        return self._outputs[name]

    def check(self) -> None:
        """Check credentials, region, bootstrap, and that no stack is there; raises `NotReady`."""
        region = self.region
        try:
            identity = self.client("sts").get_caller_identity()
        except (BotoCoreError, ClientError) as error:
            raise NotReady(
                f"no valid credentials: {error}\n`aws sts get-caller-identity` must work."
            ) from error
        account = identity["Account"]
        self.caller = f"account {account}, {region}"
        wanted = {region} if "firewall=false" in self._context else {region, EDGE_REGION}
        for each in sorted(wanted):
            if not self._is_bootstrapped(each):
                raise NotReady(
                    f"{each} is not bootstrapped: npx cdk bootstrap aws://{account}/{each}"
                )
        if existing := self.existing():
            raise NotReady(
                f"there are stacks already: {', '.join(existing)}\nAn earlier run may still be at"
                " work, or has left them: destroy them with --destroy, or use another --stage."
            )

    def _is_bootstrapped(self, region: str) -> bool:
        try:
            self.client("ssm", region).get_parameter(Name=BOOTSTRAP)
        except ClientError as error:
            # Without the permission to look, the CDK will tell.
            return bool(error.response["Error"]["Code"] != "ParameterNotFound")
        return True

    def existing(self) -> list[str]:
        """The stacks that are there, with their status."""
        found = []
        for name, region in self._names.items():
            stack = self._describe(name, region or self.region)
            if stack is not None:
                found.append(f"{name} in {region or self.region} ({stack['StackStatus']})")
        return found

    def deploy(self) -> None:
        options = ["--all", "--require-approval=never", f"--output={self._directory / 'cdk.out'}"]
        self._run("deploy", *options, *self._switches())
        self._read_outputs()

    def deploy_probe(self) -> str:
        """Deploy the second distribution in front of `live`; returns its URL."""
        host = self._function_urls()["live"].removeprefix("https://").rstrip("/")
        self._run(
            "deploy",
            *("--all", "--require-approval=never", f"--app={PROBE_APP}"),
            f"--output={self._directory / 'probe.out'}",
            *self._switches(f"live_host={host}", f"origin_secret={self.output('OriginSecretArn')}"),
        )
        self._read_outputs()
        return self.output("ProbeUrl")

    def target(self, probe_url: str | None) -> Target:
        """The deployment as the checks see it."""
        secrets = self.client("secretsmanager")

        def value(output: str) -> str:
            asked = secrets.get_secret_value(SecretId=self.output(output))
            return str(asked["SecretString"])

        return Target(
            name=self.caller,
            url=self.output("Url"),
            cable_url=self.output("CableUrl"),
            secret=first_secret(value("AccessSecretArn")),
            origin_secret=value("OriginSecretArn"),
            function_urls=self._function_urls(),
            account=self,
            probe_url=probe_url,
        )

    def destroy(self) -> list[str]:
        """Destroy what was deployed; returns what is left."""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE)
            for folder in ("probe.out", "cdk.out"):
                self._destroy(self._directory / folder)
            if not (left := self.existing()):
                return self._remove_logs()
        return [*left, *self._remove_logs()]

    def synthesise(self) -> None:
        """Write the assemblies with which an earlier deployment is destroyed."""
        self._run("synth", "--quiet", f"--output={self._directory / 'cdk.out'}", *self._switches())
        self._run(
            "synth",
            *("--quiet", f"--app={PROBE_APP}", f"--output={self._directory / 'probe.out'}"),
            *self._switches("live_host=live.invalid", "origin_secret=none"),
        )

    def _destroy(self, assembly: Path) -> None:
        if not (assembly / "manifest.json").exists():
            return
        try:
            self._run("destroy", "--all", "--force", f"--app={assembly}")
        except Failed as failure:
            self._say(str(failure))

    def _remove_logs(self) -> list[str]:
        """Remove the logs of CDK's own functions, which no stack owns; returns those that stay."""
        logs, prefix = self.client("logs"), f"/aws/lambda/{self._service}-"
        left = []
        try:
            pages = logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=prefix)
            groups = [group["logGroupName"] for page in pages for group in page["logGroups"]]
        except ClientError as error:
            return [f"log groups {prefix}* ({error})"]
        for group in groups:
            try:
                logs.delete_log_group(logGroupName=group)
            except ClientError as error:
                left.append(f"log group {group} ({error})")
        return left

    def _describe(self, name: str, region: str) -> Mapping[str, Any] | None:
        try:
            stacks = self.client("cloudformation", region).describe_stacks(StackName=name)["Stacks"]
        except ClientError as error:
            if error.response["Error"]["Code"] == "ValidationError":
                return None
            raise
        found = [stack for stack in stacks if stack["StackStatus"] != "DELETE_COMPLETE"]
        return found[0] if found else None

    def _read_outputs(self) -> None:
        for name, region in self._names.items():
            stack = self._describe(name, region or self.region) or {}
            for output in stack.get("Outputs", ()):
                self._outputs[output["OutputKey"]] = output["OutputValue"]

    def _function_urls(self) -> dict[str, str]:
        client, urls = self.client("lambda"), {}
        for name in URLS:
            listed = client.list_function_url_configs(
                FunctionName=self.output(f"{name.capitalize()}FunctionName")
            )
            (config,) = listed["FunctionUrlConfigs"]
            urls[name] = config["FunctionUrl"].rstrip("/")
        return urls

    def _switches(self, *more: str) -> list[str]:
        switches = [*self._context, f"region={self.region}", *more]
        return [f"--context={switch}" for switch in switches]

    def _run(self, *command: str) -> None:
        """Run the CDK; the first Ctrl-C ends it, but not while it destroys."""
        begun, log = time.monotonic(), self._directory / "cdk.log"
        self._say(f"cdk {command[0]} …")
        with log.open("wb") as output:
            process = subprocess.Popen(
                cdk.command(*command),
                env={**os.environ, "PATH": cdk.search_path(), "AWS_REGION": self.region},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C goes to this process alone, which decides what becomes of the CDK.
                start_new_session=True,
            )
        try:
            self._wait(process, command[0])
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
        took = time.monotonic() - begun
        if process.returncode:
            shown = log.read_text(errors="replace")[-SHOWN:]
            raise Failed(f"cdk {command[0]} failed after {took:.0f} s:\n{shown}")
        self._say(f"cdk {command[0]} took {took:.0f} s")

    def _wait(self, process: subprocess.Popen[bytes], verb: str) -> None:
        warned, minutes = False, 0
        while True:
            try:
                process.wait(TICK)
                return
            except subprocess.TimeoutExpired:
                minutes += 1
                self._say(f"cdk {verb} … {minutes} min")
            except KeyboardInterrupt:
                if verb != "destroy" or warned:
                    raise
                warned = True
                self._say("Still destroying. Press Ctrl-C again to leave the rest in the account.")
