"""The private network of the containers: nothing in it has a public address or a way out.

CloudFront comes in through an interface of its own, a VPC origin. Tasks reach AWS's services by
endpoints only. A VPC origin requires an internet gateway; no route leads to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.container_setup import ContainerSetup
from infra.context import ZONES
from infra.deployment import Deployment
from infra.lambda_function import LOG_RETENTION
from infra.stage import Plan

NETWORK: Final = "10.212.0.0/22"
SUBNETS: Final = ("10.212.0.0/24", "10.212.1.0/24")

HTTP: Final = 80
HTTPS: Final = 443

INTERFACES: Final = {
    "ecr.api": "the image",
    "ecr.dkr": "the image",
    "logs": "the log",
    "secretsmanager": "both secrets",
}
"""The services that have an interface in the network, each paid by the hour, with what for."""

CLOUDFRONT: Final = "com.amazonaws.global.cloudfront.origin-facing"


class ContainerNetwork(Construct):
    def __init__(
        self, scope: Construct, name: str, deployment: Deployment, *, setup: ContainerSetup
    ) -> None:
        super().__init__(scope, name)
        plan = deployment.plan
        vpc = ec2.CfnVPC(
            self, "Vpc", cidr_block=NETWORK, enable_dns_support=True, enable_dns_hostnames=True
        )
        routes = ec2.CfnRouteTable(self, "Routes", vpc_id=vpc.ref)
        self.subnets = [
            self._subnet(index, cidr, plan, vpc, routes) for index, cidr in enumerate(SUBNETS)
        ]
        self.vpc = ec2.Vpc.from_vpc_attributes(
            self,
            "Network",
            vpc_id=vpc.ref,
            availability_zones=[_zone(index) for index in range(ZONES)],
            isolated_subnet_ids=self.subnets,
        )
        gateway = ec2.CfnInternetGateway(self, "Gateway")
        self.attachment = ec2.CfnVPCGatewayAttachment(
            self, "Attachment", vpc_id=vpc.ref, internet_gateway_id=gateway.ref
        )
        self._log_rejections(deployment, vpc)
        self.balancer_group = self._security_group("Balancer", "the load balancer")
        self.task_group = self._security_group("Tasks", "the containers")
        self._endpoints = [
            *self._gateways(deployment, vpc, routes, setup),
            *self._interfaces(deployment, vpc),
        ]
        ec2.CfnSecurityGroupIngress(
            self,
            "FromCloudFront",
            group_id=self.balancer_group.security_group_id,
            ip_protocol="tcp",
            from_port=HTTP,
            to_port=HTTP,
            # A VPC origin's requests have addresses of CloudFront, and not of this network.
            source_prefix_list_id=setup.prefix_list(self, "CloudFront", CLOUDFRONT),
            description="VPC origins of CloudFront",
        )

    def connect_tasks(self, port: int) -> None:
        """Let the load balancer reach the containers."""
        self.balancer_group.connections.allow_to(
            self.task_group, ec2.Port.tcp(port), "requests, and health checks"
        )

    def needed_by(self, construct: Construct) -> None:
        """Have a construct wait for all that tasks need to start."""
        construct.node.add_dependency(*self._endpoints)

    def _subnet(
        self, index: int, cidr: str, plan: Plan, vpc: ec2.CfnVPC, routes: ec2.CfnRouteTable
    ) -> str:
        name = f"Subnet{index}"
        zone = (
            {"availability_zone_id": plan.zones[index]}
            if plan.zones
            else {"availability_zone": _zone(index)}
        )
        subnet = ec2.CfnSubnet(
            self,
            name,
            vpc_id=vpc.ref,
            cidr_block=cidr,
            map_public_ip_on_launch=False,
            **zone,
        )
        ec2.CfnSubnetRouteTableAssociation(
            self, f"{name}Routes", subnet_id=subnet.ref, route_table_id=routes.ref
        )
        return str(subnet.ref)

    def _security_group(self, name: str, what: str) -> ec2.SecurityGroup:
        return ec2.SecurityGroup(
            self,
            name,
            vpc=self.vpc,
            description=f"Tailrace: {what}",
            allow_all_outbound=False,
        )

    def _gateways(
        self,
        deployment: Deployment,
        vpc: ec2.CfnVPC,
        routes: ec2.CfnRouteTable,
        setup: ContainerSetup,
    ) -> list[ec2.CfnVPCEndpoint]:
        """The table and the bucket, for free."""
        storage, plan = deployment.storage, deployment.plan
        region = cdk.Stack.of(self).region
        # The registry keeps the layers of images in a bucket of its own.
        layers = f"arn:{cdk.Aws.PARTITION}:s3:::prod-{region}-starport-layer-bucket/*"
        objects = [storage.bucket.arn_for_objects("*"), layers]
        if plan.aviso_schema is not None:
            schema = plan.aviso_schema.removeprefix("s3://")
            objects.append(f"arn:{cdk.Aws.PARTITION}:s3:::{schema}")
        allowed = {
            "dynamodb": ("dynamodb:*", [storage.table.table_arn]),
            "s3": ("s3:*Object", objects),
        }
        endpoints = []
        for service, (actions, resources) in allowed.items():
            full_name = f"com.amazonaws.{region}.{service}"
            endpoint = ec2.CfnVPCEndpoint(
                self,
                _identifier(service),
                vpc_id=vpc.ref,
                service_name=full_name,
                vpc_endpoint_type="Gateway",
                route_table_ids=[routes.ref],
                policy_document=_policy(actions, resources),
            )
            egress = ec2.CfnSecurityGroupEgress(
                self,
                f"To{_identifier(service)}",
                group_id=self.task_group.security_group_id,
                ip_protocol="tcp",
                from_port=HTTPS,
                to_port=HTTPS,
                destination_prefix_list_id=setup.prefix_list(self, _identifier(service), full_name),
                description=service,
            )
            endpoints += [endpoint, egress]
        return endpoints

    def _interfaces(self, deployment: Deployment, vpc: ec2.CfnVPC) -> list[Construct]:
        plan = deployment.plan
        group = self._security_group("Interfaces", "interfaces of services")
        self.task_group.connections.allow_to(group, ec2.Port.tcp(HTTPS), "interfaces of services")
        policies = {
            "secretsmanager": _policy("secretsmanager:GetSecretValue", deployment.secret_arns)
        }
        return [
            ec2.CfnVPCEndpoint(
                self,
                _identifier(service),
                vpc_id=vpc.ref,
                service_name=f"com.amazonaws.{cdk.Stack.of(self).region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                # They are paid for each zone; if a zone fails in `dev`, no task starts meanwhile.
                subnet_ids=self.subnets if plan.stage.keeps_data else self.subnets[:1],
                security_group_ids=[group.security_group_id],
                policy_document=policies.get(service),
            )
            for service in INTERFACES
        ]

    def _log_rejections(self, deployment: Deployment, vpc: ec2.CfnVPC) -> None:
        """Log what security groups reject: it should be nothing."""
        plan = deployment.plan
        log_group = logs.LogGroup(
            self,
            "Rejections",
            retention=LOG_RETENTION[plan.stage.keeps_data],
            removal_policy=plan.removal,
        )
        role = iam.Role(
            self,
            "RejectionsRole",
            assumed_by=iam.ServicePrincipal("vpc-flow-logs.amazonaws.com"),
            description=f"Logs rejected connections of {plan.name}",
        )
        log_group.grant_write(role)
        ec2.CfnFlowLog(
            self,
            "FlowLog",
            resource_id=vpc.ref,
            resource_type="VPC",
            traffic_type="REJECT",
            log_destination_type="cloud-watch-logs",
            log_group_name=log_group.log_group_name,
            deliver_logs_permission_arn=role.role_arn,
        )


def _zone(index: int) -> str:
    return str(cdk.Fn.select(index, cdk.Fn.get_azs()))


def _identifier(service: str) -> str:
    """A service's name as a logical id: `ecr.api` becomes `EcrApi`."""
    return "".join(map(str.capitalize, service.split(".")))


def _policy(actions: str, resources: Sequence[str]) -> dict[str, Any]:
    """Of an endpoint, in addition to those of roles."""
    statement = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": actions,
        "Resource": list(resources),
    }
    return {"Version": "2012-10-17", "Statement": [statement]}
