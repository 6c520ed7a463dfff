"""The image of the containers, which CodeBuild builds in the account during a deployment.

So a deployment needs no Docker. A construct of our own does it: one that others publish would bring
a second function, permissions with wildcards, and its own Node module for each synthesis.
"""

from __future__ import annotations

from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from infra.container_setup import ContainerSetup
from infra.deployment import Deployment
from infra.findings import acknowledge
from infra.lambda_function import LOG_RETENTION, WILDCARD, allow

MACHINE: Final = "aws/codebuild/amazonlinux-aarch64-standard:3.0"
"""AWS's image for builds on arm64, with Docker."""

BUILD_MINUTES: Final = 20
KEPT_IMAGES: Final = 5
ENDED: Final = ("SUCCEEDED", "FAILED", "FAULT", "STOPPED", "TIMED_OUT")

PUSH: Final = (
    "ecr:BatchCheckLayerAvailability",
    "ecr:CompleteLayerUpload",
    "ecr:DescribeImages",
    "ecr:InitiateLayerUpload",
    "ecr:PutImage",
    "ecr:UploadLayerPart",
)

COMMANDS: Final = (
    # Tags are immutable, and the same sources may have been built before.
    'aws ecr describe-images --repository-name "$NAME" --image-ids imageTag="$TAG" || '
    "{ aws ecr get-login-password "
    '| docker login --username AWS --password-stdin "${REPOSITORY%%/*}" '
    '&& docker build --tag "$REPOSITORY:$TAG" . && docker push "$REPOSITORY:$TAG"; }'
)


class ContainerBuild(Construct):
    def __init__(
        self, scope: Construct, name: str, deployment: Deployment, *, setup: ContainerSetup
    ) -> None:
        super().__init__(scope, name)
        plan = deployment.plan
        repository = ecr.Repository(
            self,
            "Repository",
            image_scan_on_push=True,
            image_tag_mutability=ecr.TagMutability.IMMUTABLE,
            lifecycle_rules=[ecr.LifecycleRule(max_image_count=KEPT_IMAGES)],
            # Any deployment builds it again.
            empty_on_delete=True,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        sources = s3_assets.Asset(self, "Sources", path=str(deployment.assets.image))
        log_group = logs.LogGroup(
            self,
            "Logs",
            retention=LOG_RETENTION[plan.stage.keeps_data],
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        role = self._role(plan.name, repository, sources, log_group)
        project = codebuild.CfnProject(
            self,
            "Project",
            description=f"{plan.name}: builds the image of the containers",
            artifacts={"type": "NO_ARTIFACTS"},
            source=codebuild.CfnProject.SourceProperty(
                type="S3",
                location=f"{sources.s3_bucket_name}/{sources.s3_object_key}",
                build_spec=cdk.Stack.of(self).to_json_string(
                    {"version": "0.2", "phases": {"build": {"commands": [COMMANDS]}}}
                ),
            ),
            environment=codebuild.CfnProject.EnvironmentProperty(
                type="ARM_CONTAINER",
                image=MACHINE,
                compute_type="BUILD_GENERAL1_SMALL",
                privileged_mode=True,
                environment_variables=[
                    _variable("NAME", repository.repository_name),
                    _variable("REPOSITORY", repository.repository_uri),
                ],
            ),
            service_role=role.role_arn,
            timeout_in_minutes=BUILD_MINUTES,
            logs_config={
                "cloudWatchLogs": {"status": "ENABLED", "groupName": log_group.log_group_name}
            },
        )
        project.node.add_dependency(role)
        acknowledge(project, "AwsSolutions-CB3", "Docker needs it to build an image.")
        acknowledge(
            project, "AwsSolutions-CB4", "There are no artifacts; the registry encrypts images."
        )
        setup.function.add_environment("PROJECT", project.ref)
        setup.role.add_to_policy(allow(["codebuild:StartBuild"], project.attr_arn))
        ended = events.Rule(
            self,
            "Ended",
            description=f"{plan.name}: the image was built, or not",
            event_pattern=events.EventPattern(
                source=["aws.codebuild"],
                detail_type=["CodeBuild Build State Change"],
                detail={"project-name": [project.ref], "build-status": list(ENDED)},
            ),
            targets=[targets.LambdaFunction(setup.function)],
        )
        tag = setup.resource(self, "Image", "ContainerImage", "Tag", Tag=sources.asset_hash)
        image = self.node.find_child("Image")
        image.node.add_dependency(ended, role, setup.role)
        self.image = ecs.ContainerImage.from_ecr_repository(repository, tag)

    def _role(
        self,
        plan_name: str,
        repository: ecr.Repository,
        sources: s3_assets.Asset,
        log_group: logs.LogGroup,
    ) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("codebuild.amazonaws.com"),
            description=f"Builds the image of {plan_name}",
        )
        log_group.grant_write(role)
        source = f"{sources.bucket.bucket_arn}/{sources.s3_object_key}"
        for statement in (
            allow(["s3:GetObject", "s3:GetObjectVersion"], source),
            allow(PUSH, repository.repository_arn),
            allow(["ecr:GetAuthorizationToken"], "*"),
        ):
            role.add_to_policy(statement)
        acknowledge(
            role,
            f"{WILDCARD}[Resource::*]",
            "A login to the registry has no resource-level permissions.",
        )
        return role


def _variable(name: str, value: str) -> Any:
    return codebuild.CfnProject.EnvironmentVariableProperty(name=name, value=value)
