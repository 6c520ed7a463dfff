"""Assets from the output of `scripts.package`: layers, code of functions, files of jobs."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import NamedTuple

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.stage import Plan
from scripts.package import GLUE, IMAGE, LAYERS, build


class UploadedFile(NamedTuple):
    """A file in the bucket that the CDK uploads assets to."""

    url: str
    arn: str


class Assets(Construct):
    def __init__(self, scope: Construct, name: str, *, plan: Plan) -> None:
        super().__init__(scope, name)
        self._folder = build(plan.platform)
        self._excluded = set() if plan.aviso else {"aviso"}
        self._layers: dict[str, lambda_.ILayerVersion] = {}
        self._files: dict[str, UploadedFile] = {}
        self.architecture = lambda_.Architecture.ARM_64
        self.runtime = lambda_.Runtime.PYTHON_3_14
        if plan.platform == "host":
            arm = platform.machine() in ("aarch64", "arm64")
            self.architecture = self.architecture if arm else lambda_.Architecture.X86_64
            self.runtime = lambda_.Runtime(
                f"python3.{sys.version_info.minor}", lambda_.RuntimeFamily.PYTHON
            )

    @property
    def image(self) -> Path:
        """The folder from which the image of containers is built."""
        return self._folder / IMAGE

    def code(self, function: str) -> lambda_.Code:
        return lambda_.Code.from_asset(str(self._folder / "functions" / function))

    def layers(self, function: str) -> list[lambda_.ILayerVersion]:
        return [self._layer(name) for name in LAYERS[function] if name not in self._excluded]

    def file(self, name: str) -> UploadedFile:
        """A job's script, or the zip of wheels."""
        if name not in self._files:
            self._files[name] = self._upload(name)
        return self._files[name]

    def _layer(self, name: str) -> lambda_.ILayerVersion:
        if name not in self._layers:
            self._layers[name] = lambda_.LayerVersion(
                self,
                name.capitalize(),
                code=lambda_.Code.from_asset(str(self._folder / "layers" / name)),
                compatible_architectures=[self.architecture],
                compatible_runtimes=[self.runtime],
                description=f"Tailrace: {name}",
            )
        return self._layers[name]

    def _upload(self, name: str) -> UploadedFile:
        """Upload under a key that keeps all suffixes, since Glue recognizes `.gluewheels.zip` by
        its name. The CDK's own `Asset` would keep `.zip` only."""
        path = self._folder / GLUE / name
        staged = cdk.AssetStaging(self, name, source_path=str(path))
        stack = cdk.Stack.of(self)
        location = stack.synthesizer.add_file_asset(
            source_hash="".join([staged.asset_hash, *path.suffixes[:-1]]),
            file_name=staged.relative_staged_path(stack),
            packaging=cdk.FileAssetPackaging.FILE,
            display_name=name,
        )
        arn = f"arn:{cdk.Aws.PARTITION}:s3:::{location.bucket_name}/{location.object_key}"
        return UploadedFile(location.s3_object_url, arn)
