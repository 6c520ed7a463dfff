"""The stack of the service: functions behind a distribution, jobs, alarms and a dashboard."""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct

from infra.alarms import Alarms
from infra.assets import Assets
from infra.components import Components
from infra.containers import Containers
from infra.dashboard import create_dashboard
from infra.deployment import Deployment
from infra.dispatch import Dispatch, Purge
from infra.distribution import Distribution
from infra.edge_keys import EdgeKeys
from infra.history_jobs import HistoryJobs
from infra.http_functions import HttpFunctions
from infra.lambda_function import LambdaFunction
from infra.names import CONTAINERS
from infra.rotation import OriginSecretRotation
from infra.secrets import AccessControl, OriginSecret
from infra.stage import Plan
from infra.storage import StorageStack
from infra.subscriptions import SubscriptionKeys, Subscriptions
from infra.websocket_api import STAGE, WebSocketApi
from infra.websocket_functions import WebSocketFunctions


class ServiceStack(cdk.Stack):
    def __init__(
        self, scope: Construct, *, plan: Plan, storage: StorageStack, firewall: str | None
    ) -> None:
        super().__init__(
            scope,
            plan.name,
            env=plan.environment,
            cross_region_references=not plan.at_the_edge,
            description="Tailrace: Durable Streams",
        )
        deployment = Deployment(
            plan=plan,
            assets=Assets(self, "Layers", plan=plan),
            storage=storage,
            origin_secret=OriginSecret(self, "OriginSecret", plan=plan),
            access=AccessControl(self, "Access", plan=plan) if plan.access == "closed" else None,
            websocket_api=WebSocketApi(self, "Gateway", plan=plan)
            if plan.has_websocket_api
            else None,
            subscription_keys=SubscriptionKeys(self, "SubscriptionKeys", plan=plan)
            if plan.subscriptions
            else None,
            firewall=firewall,
        )
        components = self._components(deployment)
        Alarms(self, "Alarms", deployment, components)
        outputs = {
            **_outputs(deployment, components),
            "DashboardUrl": create_dashboard(self, "Dashboard", deployment, components),
        }
        for name, value in outputs.items():
            cdk.CfnOutput(self, name, value=value)

    def _components(self, deployment: Deployment) -> Components:
        access, websocket_api = deployment.access, deployment.websocket_api
        keys = deployment.subscription_keys
        subscriptions = (
            None if keys is None else Subscriptions(self, "Subscriptions", deployment, keys=keys)
        )
        http_functions = HttpFunctions(self, "Functions", deployment)
        websocket_functions = (
            None
            if websocket_api is None
            else WebSocketFunctions(self, "Cable", deployment, websocket_api=websocket_api)
        )
        containers = (
            Containers(self, "Containers", deployment) if deployment.plan.containers else None
        )
        distribution = Distribution(
            self, "Edge", deployment, http_functions=http_functions, containers=containers
        )
        return Components(
            http_functions=http_functions,
            websocket_functions=websocket_functions,
            containers=containers,
            distribution=distribution,
            edge_keys=None if access is None else EdgeKeys(self, "Keys", deployment, access=access),
            subscriptions=subscriptions,
            dispatch=None
            if websocket_api is None and subscriptions is None
            else Dispatch(self, "Dispatch", deployment, subscriptions=subscriptions),
            purge=Purge(self, "Purge", deployment, distribution=distribution),
            rotation=OriginSecretRotation(self, "Rotation", deployment, distribution=distribution),
            history_jobs=HistoryJobs(self, "History", deployment)
            if deployment.plan.history
            else None,
        )


def _outputs(deployment: Deployment, components: Components) -> dict[str, str]:
    distribution, history_jobs = components.distribution, components.history_jobs
    outputs = {
        "Url": distribution.url,
        "DistributionId": distribution.id,
        "DistributionDomain": distribution.domain,
        "OriginSecretArn": deployment.origin_secret.id,
    }
    functions = {
        **_reading_functions(components.http_functions),
        "Purge": components.purge.purge,
        "RotateSecret": components.rotation.rotate_secret,
    }
    if components.containers is not None:
        outputs["ContainersLogGroup"] = components.containers.log_group.log_group_name
        outputs["ContainersClusterName"] = components.containers.service.cluster.cluster_name
        outputs["ContainersServiceName"] = components.containers.service.service_name
    if deployment.plan.cable == CONTAINERS:
        outputs["CableUrl"] = f"wss://{distribution.host}/{STAGE}"
    if deployment.access is not None and components.edge_keys is not None:
        outputs["AccessSecretArn"] = deployment.access.secret.id
        functions["EdgeKeys"] = components.edge_keys.edge_keys
    if deployment.websocket_api is not None and components.websocket_functions is not None:
        outputs["CableUrl"] = f"wss://{distribution.host}/{STAGE}"
        outputs["CableEndpoint"] = deployment.websocket_api.endpoint
        functions["Cable"] = components.websocket_functions.cable
        functions["Heartbeat"] = components.websocket_functions.heartbeat
    if components.dispatch is not None:
        functions["Dispatch"] = components.dispatch.dispatch
    if components.subscriptions is not None and deployment.subscription_keys is not None:
        outputs["SubscriptionKeysArn"] = deployment.subscription_keys.id
        functions["Webhooks"] = components.subscriptions.webhooks
    for name, function in functions.items():
        outputs[f"{name}FunctionName"] = function.function.function_name
        outputs[f"{name}LogGroup"] = function.log_group.log_group_name
    if history_jobs is not None:
        outputs["DatabaseName"] = history_jobs.database
        outputs |= {f"{name}JobName": job.name for name, job in history_jobs.jobs.items()}
    return outputs


def _reading_functions(functions: HttpFunctions) -> dict[str, LambdaFunction]:
    each = {"Http": functions.http, "Wait": functions.wait, "Live": functions.live}
    return {title: function for title, function in each.items() if function is not None}
