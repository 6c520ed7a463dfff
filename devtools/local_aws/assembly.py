"""Reads the functions, settings and layers of the deployment from the CDK's cloud assembly.

The local AWS therefore runs what would be deployed, and not a second description of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from devtools.local_aws.environments import (
    GRACE_SECONDS,
    MOST_ENVIRONMENTS,
    Configuration,
)
from infra.names import logical_id

STAGE: Final = "dev"
STACK: Final = f"tailrace-{STAGE}"


class Assembly:
    """The synthesised stacks.

    `references` has the values of references: by type of resource, by attribute, or by logical id
    and attribute."""

    def __init__(self, folder: Path, references: Mapping[str, str]) -> None:
        self._folder = folder
        self._references = references
        self._templates = {
            file.name.removesuffix(".template.json"): json.loads(file.read_bytes())
            for file in folder.glob("*.template.json")
        }
        self._assets: dict[str, Path] = {}
        for file in folder.glob("*.assets.json"):
            for digest, asset in json.loads(file.read_bytes())["files"].items():
                self._assets[digest] = folder / asset["source"]["path"]

    @property
    def template(self) -> dict[str, Any]:
        """The stack with the functions and the distribution."""
        found: dict[str, Any] = self._templates[STACK]
        return found

    def resources(self, kind: str) -> dict[str, dict[str, Any]]:
        """The logical id and the properties of every resource of a type, in all stacks."""
        return {
            name: resource.get("Properties", {})
            for template in self._templates.values()
            for name, resource in template["Resources"].items()
            if resource["Type"] == kind
        }

    @property
    def functions(self) -> set[str]:
        """The logical ids of all functions."""
        return set(self.resources("AWS::Lambda::Function"))

    def container(self, **variables: str) -> dict[str, str] | None:
        """The variables of the containers as deployed, with some replaced; None: there are none."""
        for task in self.resources("AWS::ECS::TaskDefinition").values():
            (container,) = task["ContainerDefinitions"]
            given = {each["Name"]: self.resolve(each["Value"]) for each in container["Environment"]}
            return {**given, **variables}
        return None

    @property
    def most_containers(self) -> int:
        (target,) = self.resources("AWS::ApplicationAutoScaling::ScalableTarget").values()
        return int(target["MaxCapacity"])

    def function(self, name: str, **variables: str) -> Configuration:
        """The configuration of a function as deployed, with some variables replaced."""
        function = self.resources("AWS::Lambda::Function")[logical_id(name)]
        layers = self.resources("AWS::Lambda::LayerVersion")
        given = {
            variable: self.resolve(value)
            for variable, value in function["Environment"]["Variables"].items()
        }
        logging = function.get("LoggingConfig", {}).get("LogFormat", "Text")
        return Configuration(
            name=name,
            code=self._asset(function["Code"]),
            handler=function["Handler"],
            layers=tuple(
                self._asset(layers[layer["Ref"]]["Content"]) for layer in function["Layers"]
            ),
            runtime=function["Runtime"],
            seconds=function["Timeout"],
            grace=GRACE_SECONDS,
            memory=function["MemorySize"],
            environment={**given, "AWS_LAMBDA_LOG_FORMAT": logging, **variables},
            concurrency=min(
                function.get("ReservedConcurrentExecutions", MOST_ENVIRONMENTS), MOST_ENVIRONMENTS
            ),
        )

    def streams(self, name: str) -> bool:
        """Whether the function's URL has the invoke mode RESPONSE_STREAM."""
        modes = [
            url.get("InvokeMode", "BUFFERED")
            for url in self.resources("AWS::Lambda::Url").values()
            if logical_id(name) in json.dumps(self._target(url))
        ]
        (mode,) = modes
        return bool(mode == "RESPONSE_STREAM")

    def resolve(self, value: Any) -> str:
        """A value of the template as text, with all intrinsic functions resolved."""
        if not isinstance(value, dict):
            return str(value)
        ((function, given),) = value.items()
        if function == "Ref":
            # By its name, or else by its type: most types occur once.
            return self._references.get(given) or self._references[self._kinds[given]]
        if function == "Fn::GetAtt":
            name, attribute = given
            kind = f"{self._kinds[name]}.{attribute}"
            return self._references.get(f"{name}.{attribute}") or self._references[kind]
        if function == "Fn::ImportValue":
            return self.resolve(self._exports[self.resolve(given)])
        if function == "Fn::Join":
            return str(given[0]).join(self.resolve(part) for part in given[1])
        raise NotImplementedError(f"{function} in {value}")

    @property
    def _kinds(self) -> dict[str, str]:
        return {
            name: resource["Type"]
            for template in self._templates.values()
            for name, resource in template["Resources"].items()
        }

    @property
    def _exports(self) -> dict[str, Any]:
        return {
            output["Export"]["Name"]: output["Value"]
            for template in self._templates.values()
            for output in template.get("Outputs", {}).values()
            if "Export" in output
        }

    def _target(self, url: Mapping[str, Any]) -> Any:
        target = url["TargetFunctionArn"]
        alias = target.get("Ref") or target["Fn::GetAtt"][0]
        return self.resources("AWS::Lambda::Alias").get(alias, target)

    def _asset(self, code: Mapping[str, Any]) -> Path:
        return self._assets[code["S3Key"].removesuffix(".zip")]
