"""The containers: the very same server that runs anywhere, on the table, behind CloudFront.

One process holds thousands of readers, and polls once for each stream that they wait for.
"""

from __future__ import annotations

from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import aws_cloudfront as cloudfront
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra import protocols
from infra.container_image import ContainerBuild
from infra.container_network import HTTP, ContainerNetwork
from infra.container_setup import ContainerSetup
from infra.deployment import Deployment
from infra.findings import acknowledge
from infra.http_functions import allow_renewing, stream_environment, wait_environment
from infra.lambda_function import (
    BATCH_WRITE,
    BODIES,
    COMMON_ENVIRONMENT,
    LOG_RETENTION,
    READ,
    SEGMENTS,
    WILDCARD,
    WRITE,
    allow,
)
from infra.names import CONTAINERS
from infra.stage import Plan
from tailrace.aws.runtime.container_metrics import NAME as METRICS_NAME

PORT: Final = 4437

MEGABYTES: Final = {256: 1024, 512: 1024, 1024: 2048}
"""By units of processor: Fargate has no more than four times as many GB as processors."""

LIFETIME_SECONDS: Final = 900
"""How long a response lasts: each new one is a request to CloudFront, but only new ones come to
containers that were added."""

CONNECTIONS: Final = {256: 2_500, 512: 5_000, 1024: 10_000}
"""The connections of a container above which another one is added."""

BUSY_PERCENT: Final = 60
"""The use of a processor above which another one is added."""

METRICS_SECONDS: Final = 60

IDLE_SECONDS: Final = 600
"""How long the load balancer keeps a silent connection: longer than any pause between pings."""

DRAIN_SECONDS: Final = 30
"""How long the load balancer sends nothing new to a container before that is told to stop."""

STOP_SECONDS: Final = 30
"""How long a container may then take to end its responses."""

OPEN_FILES: Final = 65_535
HEALTH_SECONDS: Final = 10


class Containers(Construct):
    def __init__(self, scope: Construct, name: str, deployment: Deployment) -> None:
        super().__init__(scope, name)
        plan = deployment.plan
        setup = ContainerSetup(self, "Setup", plan=plan)
        network = ContainerNetwork(self, "Network", deployment, setup=setup)
        build = ContainerBuild(self, "Build", deployment, setup=setup)
        self.log_group = logs.LogGroup(
            self,
            "Logs",
            retention=LOG_RETENTION[plan.stage.keeps_data],
            removal_policy=plan.removal,
        )
        self.balancer = elb.ApplicationLoadBalancer(
            self,
            "Balancer",
            vpc=network.vpc,
            internet_facing=False,
            security_group=network.balancer_group,
            idle_timeout=cdk.Duration.seconds(IDLE_SECONDS),
            drop_invalid_header_fields=True,
        )
        acknowledge(
            self.balancer,
            "AwsSolutions-ELB2",
            "Its log would keep every reader's address, as that of the distribution would.",
        )
        self.targets = elb.ApplicationTargetGroup(
            self,
            "Targets",
            vpc=network.vpc,
            port=PORT,
            protocol=elb.ApplicationProtocol.HTTP,
            target_type=elb.TargetType.IP,
            # Connections last, so the next one belongs to the container that has the fewest.
            load_balancing_algorithm_type=(
                elb.TargetGroupLoadBalancingAlgorithmType.LEAST_OUTSTANDING_REQUESTS
            ),
            deregistration_delay=cdk.Duration.seconds(DRAIN_SECONDS),
            health_check=elb.HealthCheck(
                # Of the process: new ones would not help while DynamoDB is out of reach.
                path="/health?process",
                interval=cdk.Duration.seconds(HEALTH_SECONDS),
                timeout=cdk.Duration.seconds(HEALTH_SECONDS // 2),
                healthy_threshold_count=2,
                unhealthy_threshold_count=3,
            ),
        )
        listener = self.balancer.add_listener(
            "Listener",
            port=HTTP,
            protocol=elb.ApplicationProtocol.HTTP,
            open=False,
            default_target_groups=[self.targets],
        )
        self.service = self._service(deployment, network, build)
        self.service.node.add_dependency(listener)
        network.connect_tasks(PORT)
        network.needed_by(self.service)
        self._scale(plan)
        self.origin = cloudfront.CfnVpcOrigin(
            self,
            "Origin",
            vpc_origin_endpoint_config=cloudfront.CfnVpcOrigin.VpcOriginEndpointConfigProperty(
                name=f"{plan.name}-{cdk.Aws.REGION}",
                arn=self.balancer.load_balancer_arn,
                # Between interfaces of this network: CloudFront encrypts what comes before.
                origin_protocol_policy="http-only",
                http_port=HTTP,
                https_port=443,
            ),
        )
        self.origin.node.add_dependency(network.attachment, listener)

    def connections_metric(self, plan: Plan, statistic: str) -> cloudwatch.Metric:
        """The open connections, which each container reports once a minute."""
        return cloudwatch.Metric(
            namespace=COMMON_ENVIRONMENT["POWERTOOLS_METRICS_NAMESPACE"],
            metric_name="connections_num",
            dimensions_map={"function": METRICS_NAME, "service": plan.name},
            statistic=statistic,
            label=f"connections_num {statistic}",
            period=cdk.Duration.seconds(METRICS_SECONDS),
        )

    def _service(
        self, deployment: Deployment, network: ContainerNetwork, build: ContainerBuild
    ) -> ecs.FargateService:
        cluster = ecs.Cluster(
            self, "Cluster", vpc=network.vpc, container_insights_v2=ecs.ContainerInsights.DISABLED
        )
        acknowledge(
            cluster,
            "AwsSolutions-ECS4",
            "The service's own metrics and that of connections are what its alarms need.",
        )
        return ecs.FargateService(
            self,
            "Service",
            cluster=cluster,
            task_definition=self._task(deployment, build),
            assign_public_ip=False,
            security_groups=[network.task_group],
            # All tasks of the old version go on until those of the new one are healthy.
            min_healthy_percent=100,
            max_healthy_percent=200,
            circuit_breaker=ecs.DeploymentCircuitBreaker(rollback=True),
            health_check_grace_period=cdk.Duration.seconds(60),
        )

    def _task(self, deployment: Deployment, build: ContainerBuild) -> ecs.FargateTaskDefinition:
        plan = deployment.plan
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"),
            description=f"Role of the containers of {plan.name}",
        )
        for statement in _allowed(deployment):
            role.add_to_policy(statement)
        for pattern in (BODIES, SEGMENTS):
            acknowledge(
                role,
                f"{WILDCARD}[Resource::{deployment.storage.bucket_finding}/{pattern}]",
                "Every large body and every segment is an object of its own.",
            )
        task = ecs.FargateTaskDefinition(
            self,
            "Task",
            cpu=plan.container_cpu,
            memory_limit_mib=MEGABYTES[plan.container_cpu],
            runtime_platform=ecs.RuntimePlatform(
                cpu_architecture=ecs.CpuArchitecture.ARM64,
                operating_system_family=ecs.OperatingSystemFamily.LINUX,
            ),
            task_role=role,
        )
        acknowledge(
            task,
            "AwsSolutions-ECS2",
            "The variables have names of resources, not secrets, which the server reads itself.",
        )
        container = task.add_container(
            "server",
            image=build.image,
            environment=_environment(deployment),
            logging=ecs.LogDrivers.aws_logs(
                stream_prefix="containers",
                log_group=self.log_group,
                mode=ecs.AwsLogDriverMode.NON_BLOCKING,
            ),
            readonly_root_filesystem=True,
            stop_timeout=cdk.Duration.seconds(STOP_SECONDS),
            port_mappings=[ecs.PortMapping(container_port=PORT)],
        )
        container.add_ulimits(
            ecs.Ulimit(name=ecs.UlimitName.NOFILE, soft_limit=OPEN_FILES, hard_limit=OPEN_FILES)
        )
        acknowledge(
            task.obtain_execution_role(),
            f"{WILDCARD}[Resource::*]",
            "A login to the registry has no resource-level permissions.",
        )
        return task

    def _scale(self, plan: Plan) -> None:
        self.targets.add_target(self.service)
        count = self.service.auto_scale_task_count(
            min_capacity=plan.containers_min, max_capacity=plan.containers_max
        )
        count.scale_on_cpu_utilization("Busy", target_utilization_percent=BUSY_PERCENT)
        count.scale_to_track_custom_metric(
            "Connections",
            metric=self.connections_metric(plan, "avg"),
            target_value=CONNECTIONS[plan.container_cpu],
        )


def _environment(deployment: Deployment) -> dict[str, str]:
    plan = deployment.plan
    lifetime = str(LIFETIME_SECONDS)
    return {
        **COMMON_ENVIRONMENT,
        "POWERTOOLS_SERVICE_NAME": plan.name,
        **stream_environment(deployment),
        **wait_environment(plan),
        **protocols.cable_environment(plan),
        **protocols.events_environment(plan),
        **protocols.aviso_environment(plan),
        "TAILRACE_STORE": "dynamodb",
        "TAILRACE_HOST": "0.0.0.0",  # noqa: S104 - the network has no other way in
        "TAILRACE_PORT": str(PORT),
        "TAILRACE_READ_ONLY": str(plan.writes != CONTAINERS).lower(),
        "TAILRACE_READ_ONLY_RENEWS": "true",
        "TAILRACE_CABLE_PATH": "/cable" if plan.cable == CONTAINERS else "",
        "TAILRACE_SSE_SHARED": str(plan.sse == "shared").lower(),
        "TAILRACE_SSE_LIFETIME": lifetime,
        "TAILRACE_EVENTS_LIFETIME": lifetime,
        **({"TAILRACE_AVISO_MAX_DURATION": lifetime} if plan.aviso else {}),
        # The sweep is a job.
        "TAILRACE_SWEEP_INTERVAL": "0",
        "TAILRACE_SHUTDOWN_GRACE": str(STOP_SECONDS - 10),
        "TAILRACE_METRICS_INTERVAL": str(METRICS_SECONDS),
    }


def _allowed(deployment: Deployment) -> list[Any]:
    plan, storage = deployment.plan, deployment.storage
    table, bucket = storage.table.table_arn, storage.bucket
    bodies, segments = map(bucket.arn_for_objects, (BODIES, SEGMENTS))
    writes = (
        [allow([*WRITE, BATCH_WRITE], table), allow(["s3:PutObject"], bodies)]
        if plan.writes == CONTAINERS
        else [allow_renewing(table)]
    )
    return [
        allow(READ, table),
        allow(["s3:GetObject"], bodies, segments),
        allow(["secretsmanager:GetSecretValue"], *deployment.secret_arns),
        *protocols.allow_reading_schema(plan),
        *writes,
    ]
