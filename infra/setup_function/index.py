"""Builds the image of containers, and finds prefix lists, which CloudFormation cannot do itself.

It answers two kinds of custom resources. An image is built by CodeBuild, which takes minutes: a
build is started with CloudFormation's request in its environment, and the event of its end answers
that request. Lambda's own boto3 is all that it needs.
"""

from __future__ import annotations

import json
import os
import urllib.request
from typing import Any

import boto3

REQUEST = "CLOUDFORMATION_REQUEST"
"""Variable of a build: the parts of CloudFormation's request that its answer needs."""

ANSWERED = ("ResponseURL", "StackId", "RequestId", "LogicalResourceId", "PhysicalResourceId")


def handler(event: dict[str, Any], _: object) -> None:
    """Handle a request of CloudFormation, or the event of a build that has ended."""
    if event.get("source") == "aws.codebuild":
        end_build(event["detail"])
        return
    try:
        outcome = handle(event)
    except Exception as error:
        # Without an answer CloudFormation would wait until its own time is up.
        answer(event, reason=f"{type(error).__name__}: {error}")
        raise
    if outcome is not None:
        answer(event, data=outcome)


def handle(event: dict[str, Any]) -> dict[str, str] | None:
    """The attributes of the resource; None: the answer comes later."""
    if event["RequestType"] == "Delete":
        return {}
    properties = event["ResourceProperties"]
    if event["ResourceType"] == "Custom::PrefixList":
        return {"Id": find_prefix_list(properties["Name"])}
    start_build(event, properties["Tag"])
    return None


def find_prefix_list(name: str) -> str:
    found = boto3.client("ec2").describe_managed_prefix_lists(
        Filters=[{"Name": "prefix-list-name", "Values": [name]}]
    )["PrefixLists"]
    if len(found) != 1:
        raise LookupError(f"{len(found)} managed prefix lists are named {name}")
    identifier: str = found[0]["PrefixListId"]
    return identifier


def start_build(event: dict[str, Any], tag: str) -> None:
    request = {name: event[name] for name in ANSWERED if name in event}
    boto3.client("codebuild").start_build(
        projectName=os.environ["PROJECT"],
        environmentVariablesOverride=[
            {"name": "TAG", "value": tag, "type": "PLAINTEXT"},
            {"name": REQUEST, "value": json.dumps(request), "type": "PLAINTEXT"},
        ],
    )


def end_build(detail: dict[str, Any]) -> None:
    information = detail["additional-information"]
    variables = {
        each["name"]: each["value"] for each in information["environment"]["environment-variables"]
    }
    if REQUEST not in variables:
        return  # Somebody has started it by hand.
    request = json.loads(variables[REQUEST])
    if detail["build-status"] == "SUCCEEDED":
        answer(request, data={"Tag": variables["TAG"]})
    else:
        link = information.get("logs", {}).get("deep-link", "the log of CodeBuild")
        answer(
            request, reason=f"the image could not be built: {detail['build-status']}, see {link}"
        )


def answer(
    request: dict[str, Any], *, data: dict[str, str] | None = None, reason: str = ""
) -> None:
    """Tell CloudFormation that a request succeeded with these attributes, or why it failed."""
    body = {
        "Status": "FAILED" if reason else "SUCCESS",
        "Reason": reason[:1000],
        # The same for ever: a new image replaces nothing.
        "PhysicalResourceId": request.get("PhysicalResourceId", request["LogicalResourceId"]),
        "StackId": request["StackId"],
        "RequestId": request["RequestId"],
        "LogicalResourceId": request["LogicalResourceId"],
        "Data": data or {},
    }
    put = urllib.request.Request(  # noqa: S310 - CloudFormation's own URL
        request["ResponseURL"],
        data=json.dumps(body).encode(),
        method="PUT",
        headers={"content-type": ""},
    )
    with urllib.request.urlopen(put, timeout=10):  # noqa: S310
        pass
