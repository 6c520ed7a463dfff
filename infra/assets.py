"""What `scripts.package` builds, as layers, code and files of jobs."""

from __future__ import annotations

import platform
import sys
from typing import NamedTuple

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.stage import Plan
from scripts.package import GLUE, LAYERS, build


class Uploaded(NamedTuple):
    """A file in the bucket that the CDK uploads to."""

    url: str
    arn: str


class Assets(Construct):
    def __init__(self, scope: Construct, name: str, *, plan: Plan) -> None:
        super().__init__(scope, name)
        self._place = build(plan.platform)
        self._left_out = set() if plan.aviso else {"aviso"}
        self._layers: dict[str, lambda_.ILayerVersion] = {}
        self._files: dict[str, Uploaded] = {}
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
        return [self._layer(name) for name in LAYERS[function] if name not in self._left_out]

    def file(self, name: str) -> Uploaded:
        """A script of the jobs, or their zip."""
        if name not in self._files:
            self._files[name] = self._upload(name)
        return self._files[name]

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

    def _upload(self, name: str) -> Uploaded:
        """Keeps all that the name ends with, for Glue goes by that: of `.gluewheels.zip` the CDK's
        own construct would leave `.zip`."""
        path = self._place / GLUE / name
        staged = cdk.AssetStaging(self, name, source_path=str(path))
        stack = cdk.Stack.of(self)
        made = stack.synthesizer.add_file_asset(
            source_hash="".join([staged.asset_hash, *path.suffixes[:-1]]),
            file_name=staged.relative_staged_path(stack),
            packaging=cdk.FileAssetPackaging.FILE,
            display_name=name,
        )
        arn = f"arn:{cdk.Aws.PARTITION}:s3:::{made.bucket_name}/{made.object_key}"
        return Uploaded(made.s3_object_url, arn)
