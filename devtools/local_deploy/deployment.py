"""The stacks of the stage dev in ministack, deployed with the CDK's command line."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import httpx

from devtools import cdk
from devtools.engines.ministack import Ministack
from devtools.processes import ROOT
from scripts.package import build

REGION = "us-east-1"
ENVIRONMENT = f"aws://000000000000/{REGION}"
CONTEXT = ["--context=stage=dev", "--context=platform=host", "--context=access=open"]
"""Packages for this machine, because ministack runs the functions with its own Python; and open
access, because it has no key-value stores."""

COMMAND_SECONDS = 900.0
WAIT_SECONDS = 180.0

CABLES = ("L", "X")
"""Prefixes of the partitions of cable connections and of their heartbeat."""


class Cloud(Ministack):
    """ministack under the names that things have on AWS: functions post to those who are connected
    at the host of their API, and by that it knows which API they mean."""

    def _settings(self) -> dict[str, str]:
        return {**super()._settings(), "MINISTACK_HOST": f"{REGION}.amazonaws.com"}


class Deployment:
    """Deploys and uses the stacks; prints each step and its duration."""

    def __init__(self, ministack: Ministack, directory: Path) -> None:
        self.url = ministack.url
        self._directory = directory
        self._assembly = directory / "cdk.out"

    def bootstrap(self) -> None:
        self._cdk("bootstrap", ENVIRONMENT)

    def deploy(self) -> str:
        """Package, synthesise and deploy; returns the output of the command line."""
        build("host")
        options = [*CONTEXT, f"--output={self._assembly}", "--require-approval=never"]
        return self._cdk("deploy", "--all", *options, cwd=ROOT)

    def destroy(self) -> None:
        self._cdk("destroy", "--all", "--force", f"--app={self._assembly}")

    def client(self, service: str) -> Any:
        session = boto3.Session("test", "test", region_name=REGION)
        return session.client(service, endpoint_url=self.url)

    def stacks(self) -> dict[str, str]:
        """The status of each stack."""
        found = self.client("cloudformation").describe_stacks()["Stacks"]
        return {stack["StackName"]: stack["StackStatus"] for stack in found}

    def output(self, name: str) -> str:
        found = self.client("cloudformation").describe_stacks()["Stacks"]
        values = {each["OutputKey"]: each for stack in found for each in stack.get("Outputs", ())}
        value: str = values[name]["OutputValue"]
        return value

    def secret(self) -> str:
        """The origin secret, which CloudFront sends to the functions."""
        asked = self.client("secretsmanager").get_secret_value(
            SecretId=self.output("OriginSecretArn")
        )
        value: str = asked["SecretString"]
        return value

    def request(
        self, method: str, path: str, secret: str, body: str = "", kind: str = "text/plain"
    ) -> httpx.Response:
        """Send a request to the function URL of `http`, like the distribution."""
        listed = self.client("lambda").list_function_url_configs(
            FunctionName=self.output("HttpFunctionName")
        )
        (url,) = (config["FunctionUrl"] for config in listed["FunctionUrlConfigs"])
        place = f"{self.url}/_aws/lambda-url/{httpx.URL(url).host.partition('.')[0]}"
        headers = {"content-type": kind, "x-tailrace-origin": secret}
        answer = httpx.request(
            method, f"{place}{path}", headers=headers, content=body, timeout=60, trust_env=False
        )
        print(f"{method} {path} → {answer.status_code}")
        return answer

    def broadcast(self, stream: str, message: Any, secret: str) -> httpx.Response:
        told = json.dumps({"stream": stream, "data": json.dumps(message)})
        return self.request("POST", "/_broadcast", secret, told, "application/json")

    def cable_url(self) -> str:
        """The URL of the WebSocket API."""
        host, _, stage = self.output("CableEndpoint").removeprefix("https://").partition("/")
        place = self.url.replace("http", "ws", 1)
        return f"{place}/_aws/execute-api/{host.partition('.')[0]}/{stage}"

    def on_cables(self) -> set[str]:
        """The keys of the connections and of the heartbeat in the table."""
        found = self.client("dynamodb").scan(TableName=self.output("TableName"))["Items"]
        keys = [(item["p"]["S"], item["s"]["S"]) for item in found]
        return {f"{p} {s}" for p, s in keys if p.startswith(CABLES)}

    def invalidated(self) -> list[str]:
        """The paths and tags that were invalidated."""
        cloudfront, distribution = self.client("cloudfront"), self.output("DistributionId")
        listed = cloudfront.list_invalidations(DistributionId=distribution)["InvalidationList"]
        return [
            path
            for each in listed.get("Items", ())
            for path in cloudfront.get_invalidation(DistributionId=distribution, Id=each["Id"])[
                "Invalidation"
            ]["InvalidationBatch"]["Paths"]["Items"]
        ]

    def rotate(self) -> None:
        """Invoke the rotation function like Secrets Manager, which ministack does not do."""
        version = secrets.token_hex(16)
        for step in ("createSecret", "setSecret", "testSecret", "finishSecret"):
            event = {"SecretId": self.output("OriginSecretArn"), "ClientRequestToken": version}
            answer = self.client("lambda").invoke(
                FunctionName=self.output("RotateSecretFunctionName"),
                Payload=json.dumps({**event, "Step": step}),
            )
            assert "FunctionError" not in answer, answer["Payload"].read()
            print(f"{step} is done")

    def origin_headers(self) -> set[str]:
        """The values of the secret's header that the distribution sends."""
        config = self.client("cloudfront").get_distribution_config(Id=self.output("DistributionId"))
        origins = config["DistributionConfig"]["Origins"]["Items"]
        return {
            header["HeaderValue"]
            for origin in origins
            for header in origin["CustomHeaders"]["Items"]
        }

    def _cdk(self, *command: str, cwd: Path | None = None) -> str:
        """Run the CDK in the project's folder, where it finds the app and synthesises it."""
        begun = time.monotonic()
        done = subprocess.run(
            cdk.command(*command),
            env={**self.environment(), "PATH": cdk.search_path()},
            cwd=cwd or self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        assert done.returncode == 0, f"cdk {command[0]} failed:\n{done.stdout}"
        print(f"cdk {command[0]} took {time.monotonic() - begun:.0f} s")
        return done.stdout

    def environment(self) -> dict[str, str]:
        """The environment without variables that could refer to a real account."""
        safe = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CDK_"))}
        return {
            **safe,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": REGION,
            "AWS_CONFIG_FILE": str(self._directory / "no-config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self._directory / "no-credentials"),
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_HOME": str(self._directory),
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1",
        }


def wait_for(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not met():
        assert time.monotonic() < deadline, f"still not so after {WAIT_SECONDS:.0f} s"
        time.sleep(0.2)
