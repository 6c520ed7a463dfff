"""The folders that `scripts.package` builds, as layers and code."""

from __future__ import annotations

import platform
import sys

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.stage import Plan
from scripts.package import LAYERS, build


class Assets(Construct):
    def __init__(self, scope: Construct, name: str, *, plan: Plan) -> None:
        super().__init__(scope, name)
        self._place = build(plan.platform)
        self._layers: dict[str, lambda_.ILayerVersion] = {}
        self.architecture = lambda_.Architecture.ARM_64
        self.runtime = lambda_.Runtime.PYTHON_3_14
        if plan.platform == "host":
            arm = platform.machine() in ("aarch64", "arm64")
            self.architecture = self.architecture if arm else lambda_.Architecture.X86_64
            self.runtime = lambda_.Runtime(
                f"python3.{sys.version_info.minor}", lambda_.RuntimeFamily.PYTHON
            )

    def code(self, function: str) -> lambda_.Code:
        return lambda_.Code.from_asset(str(self._place / "functions" / function))

    def layers(self, function: str) -> list[lambda_.ILayerVersion]:
        return [self._layer(name) for name in LAYERS[function]]

    def _layer(self, name: str) -> lambda_.ILayerVersion:
        if name not in self._layers:
            self._layers[name] = lambda_.LayerVersion(
                self,
                name.capitalize(),
                code=lambda_.Code.from_asset(str(self._place / "layers" / name)),
                compatible_architectures=[self.architecture],
                compatible_runtimes=[self.runtime],
                description=f"Tailrace: {name}",
            )
        return self._layers[name]
