"""The function behind the custom resources: CloudFormation, EC2 and CodeBuild as they call it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from infra.container_image import COMMANDS
from infra.container_setup import CODE


@pytest.fixture(scope="module")
def function() -> ModuleType:
    spec = importlib.util.spec_from_file_location("container_setup_function", CODE / "index.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class CloudFormation:
    """The bucket to which custom resources put their answers."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.headers["content-type"] == ""
                outer.answers.append(json.loads(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)

    def request(self, kind: str, what: str = "Create", **properties: str) -> dict[str, Any]:
        return {
            "RequestType": what,
            "ResponseURL": f"http://127.0.0.1:{self.server.server_port}/answer?signed=1",
            "StackId": "stack-1",
            "RequestId": "request-1",
            "LogicalResourceId": "Resource",
            "ResourceType": f"Custom::{kind}",
            "ResourceProperties": {"ServiceToken": "arn", **properties},
        }


@pytest.fixture
def cloudformation() -> Iterator[CloudFormation]:
    shown = CloudFormation()
    thread = threading.Thread(target=shown.server.serve_forever, daemon=True)
    thread.start()
    yield shown
    shown.server.shutdown()
    thread.join()
    shown.server.server_close()


def stub(function: ModuleType, monkeypatch: pytest.MonkeyPatch, service: str) -> Stubber:
    """The service's client, which checks calls against the service's own definition."""
    client = boto3.client(
        service, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    stubber = Stubber(client)
    stubber.activate()
    monkeypatch.setattr(function.boto3, "client", {service: client}.__getitem__)
    return stubber


def test_a_prefix_list_is_found_by_its_name(
    function: ModuleType, cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ec2 = stub(function, monkeypatch, "ec2")
    ec2.add_response(
        "describe_managed_prefix_lists",
        {"PrefixLists": [{"PrefixListId": "pl-1", "PrefixListName": "name"}]},
        {"Filters": [{"Name": "prefix-list-name", "Values": ["name"]}]},
    )
    function.handler(cloudformation.request("PrefixList", Name="name"), None)
    (answer,) = cloudformation.answers
    assert (answer["Status"], answer["Data"]) == ("SUCCESS", {"Id": "pl-1"})
    assert (answer["StackId"], answer["RequestId"]) == ("stack-1", "request-1")
    assert answer["PhysicalResourceId"] == "Resource"


def test_a_prefix_list_that_is_missing_fails_the_deployment_at_once(
    function: ModuleType, cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(function, monkeypatch, "ec2").add_response(
        "describe_managed_prefix_lists", {"PrefixLists": []}
    )
    with pytest.raises(LookupError):
        function.handler(cloudformation.request("PrefixList", Name="nowhere"), None)
    (answer,) = cloudformation.answers
    assert answer["Status"] == "FAILED"
    assert "named nowhere" in answer["Reason"]


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED"])
def test_the_end_of_a_build_answers_the_request_that_began_it(
    function: ModuleType,
    cloudformation: CloudFormation,
    monkeypatch: pytest.MonkeyPatch,
    status: str,
) -> None:
    monkeypatch.setenv("PROJECT", "images")
    codebuild = stub(function, monkeypatch, "codebuild")
    began: list[dict[str, Any]] = []
    codebuild.client.meta.events.register(
        "provide-client-params.codebuild.StartBuild", lambda params, **_: began.append(params)
    )
    codebuild.add_response("start_build", {"build": {"id": "images:1"}})
    request = cloudformation.request("ContainerImage", "Update", Tag="abc")
    request["PhysicalResourceId"] = "Before"
    function.handler(request, None)
    assert cloudformation.answers == []
    assert began[0]["projectName"] == "images"
    variables = began[0]["environmentVariablesOverride"]
    function.handler(
        {
            "source": "aws.codebuild",
            "detail": {
                "build-status": status,
                "additional-information": {
                    "environment": {"environment-variables": variables},
                    "logs": {"deep-link": "https://log.example"},
                },
            },
        },
        None,
    )
    (answer,) = cloudformation.answers
    assert answer["PhysicalResourceId"] == "Before"
    if status == "SUCCEEDED":
        assert (answer["Status"], answer["Data"]) == ("SUCCESS", {"Tag": "abc"})
    else:
        assert answer["Status"] == "FAILED"
        assert "FAILED, see https://log.example" in answer["Reason"]


def test_a_build_that_was_started_by_hand_answers_nobody(
    function: ModuleType, cloudformation: CloudFormation
) -> None:
    variables = [{"name": "TAG", "value": "abc", "type": "PLAINTEXT"}]
    information = {"environment": {"environment-variables": variables}}
    detail = {"build-status": "SUCCEEDED", "additional-information": information}
    function.handler({"source": "aws.codebuild", "detail": detail}, None)
    assert cloudformation.answers == []


@pytest.mark.parametrize("kind", ["PrefixList", "ContainerImage"])
def test_a_deletion_always_succeeds(
    function: ModuleType, cloudformation: CloudFormation, kind: str
) -> None:
    function.handler(cloudformation.request(kind, "Delete"), None)
    (answer,) = cloudformation.answers
    assert answer["Status"] == "SUCCESS"


@pytest.mark.parametrize("built_before", [True, False])
def test_the_build_pushes_an_image_unless_it_was_built_before(
    tmp_path: Path, built_before: bool
) -> None:
    """The command runs with programs that log how they were called."""
    log = tmp_path / "log"
    programs = {
        "aws": f'case "$*" in *describe-images*) exit {0 if built_before else 254};; esac',
        "docker": ":",
    }
    for name, body in programs.items():
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {log}\n{body}\n')
        program.chmod(0o755)
    variables = {"NAME": "images", "REPOSITORY": "1.dkr.ecr.example/images", "TAG": "abc"}
    env = {**variables, "PATH": f"{tmp_path}:{os.defpath}"}
    subprocess.run(["sh", "-c", COMMANDS], env=env, check=True)
    looked, *rest = log.read_text().splitlines()
    assert looked == "aws ecr describe-images --repository-name images --image-ids imageTag=abc"
    steps = [
        "aws ecr get-login-password",
        "docker login --username AWS --password-stdin 1.dkr.ecr.example",
        "docker build --tag 1.dkr.ecr.example/images:abc .",
        "docker push 1.dkr.ecr.example/images:abc",
    ]
    # Both sides of the pipe of the login start at once.
    assert sorted(rest) == ([] if built_before else sorted(steps))
    assert rest[2:] == ([] if built_before else steps[2:])
