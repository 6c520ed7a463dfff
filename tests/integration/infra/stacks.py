"""The output of synthesising the CDK application: templates, and findings of its checks."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from infra.names import logical_id

Resource = dict[str, Any]


class Stacks:
    """The application as `cdk synth -c name=value …` makes it, with the security rules over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def templates(self) -> dict[str, dict[str, Any]]:
        """By the names of the stacks."""
        return {
            file.name.removesuffix(".template.json"): json.loads(file.read_bytes())
            for file in sorted(self.folder.glob("*.template.json"))
        }

    @property
    def findings(self) -> list[str]:
        """The findings of the rules, with their places."""
        report = json.loads((self.folder / "validation-report.json").read_bytes())
        return [
            f"{violation['ruleName']} {found['constructPath']}"
            for plugin in report["pluginReports"]
            for violation in plugin["violations"]
            for found in violation["violatingConstructs"]
        ]

    def resources(self, kind: str) -> dict[str, Resource]:
        """Logical id and properties of all that are of a kind."""
        return {
            name: resource.get("Properties", {})
            for template in self.templates.values()
            for name, resource in template["Resources"].items()
            if resource["Type"] == kind
        }

    def only(self, kind: str) -> Resource:
        """The properties of the only one of a kind."""
        (found,) = self.resources(kind).values()
        return found

    def function(self, name: str) -> Resource:
        return self.resources("AWS::Lambda::Function")[logical_id(name)]

    @property
    def distribution(self) -> Resource:
        config: Resource = self.only("AWS::CloudFront::Distribution")["DistributionConfig"]
        return config

    def job(self, name: str) -> Resource:
        """A Glue job, by what people call it."""
        (found,) = (
            job
            for job in self.resources("AWS::Glue::Job").values()
            if job["Name"].split("-", 2)[2] == name
        )
        return found

    def statements(self, function: str) -> list[Resource]:
        """The statements of a function's role."""
        return self.allowed(self.function(function))

    def allowed(self, holder: Resource) -> list[Resource]:
        """The statements of the role of a function or job."""
        role, _ = holder["Role"]["Fn::GetAtt"]
        return [
            statement
            for policy in self.resources("AWS::IAM::Policy").values()
            if {"Ref": role} in policy["Roles"]
            for statement in policy["PolicyDocument"]["Statement"]
        ]
