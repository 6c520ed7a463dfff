"""The service: functions behind a distribution, and what keeps an eye on them."""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct

from infra.access import Access, Keys
from infra.assets import Assets
from infra.cable import Cable
from infra.dashboard import dashboard
from infra.dispatch import Dispatch, Rotation
from infra.edge import Edge
from infra.functions import Functions
from infra.gateway import STAGE, Gateway
from infra.history import History
from infra.observe import Alarms
from infra.secret import OriginSecret
from infra.stage import Plan
from infra.storage import Storage


class Service(cdk.Stack):
    def __init__(
        self, scope: Construct, *, plan: Plan, storage: Storage, firewall: str | None
    ) -> None:
        super().__init__(
            scope,
            plan.name,
            env=plan.environment,
            cross_region_references=not plan.at_the_edge,
            description="Tailrace: Durable Streams",
        )
        assets = Assets(self, "Layers", plan=plan)
        secret = OriginSecret(self, "OriginSecret", plan=plan)
        access = Access(self, "Access", plan=plan) if plan.access == "closed" else None
        gateway = Gateway(self, "Gateway", plan=plan) if plan.cable else None
        functions = Functions(
            self,
            "Functions",
            plan=plan,
            assets=assets,
            storage=storage,
            secret=secret,
            access=None if access is None else access.secret,
            gateway=gateway,
        )
        cable = (
            Cable(
                self,
                "Cable",
                plan=plan,
                assets=assets,
                storage=storage,
                gateway=gateway,
                secret=secret,
                access=None if access is None else access.secret,
            )
            if gateway is not None
            else None
        )
        edge = Edge(
            self,
            "Edge",
            plan=plan,
            functions=functions,
            gateway=gateway,
            secret=secret,
            firewall=firewall,
            keys=None if access is None else access.keys,
        )
        keys = (
            Keys(self, "Keys", plan=plan, assets=assets, secret=secret, access=access)
            if access is not None
            else None
        )
        dispatch = Dispatch(
            self,
            "Dispatch",
            plan=plan,
            assets=assets,
            storage=storage,
            edge=edge,
            gateway=gateway,
        )
        rotation = Rotation(
            self,
            "Rotation",
            plan=plan,
            assets=assets,
            secret=secret,
            edge=edge,
            firewall=firewall,
        )
        history = (
            History(self, "History", plan=plan, assets=assets, storage=storage)
            if plan.history
            else None
        )
        Alarms(
            self,
            "Alarms",
            plan=plan,
            storage=storage,
            functions=functions,
            edge=edge,
            dispatch=dispatch,
            rotation=rotation,
            keys=keys,
            cable=cable,
            history=history,
        )
        seen = dashboard(
            self,
            "Dashboard",
            plan=plan,
            storage=storage,
            functions=functions,
            edge=edge,
            dispatch=dispatch,
            gateway=gateway,
            history=history,
        )
        outputs = {
            "Url": edge.url,
            "DistributionId": edge.id,
            "DistributionDomain": edge.domain,
            "OriginSecretArn": secret.id,
            "DashboardUrl": seen,
        }
        made_functions = {
            "Http": functions.http,
            "Live": functions.live,
            "Dispatch": dispatch.dispatch,
            "RotateSecret": rotation.rotate_secret,
        }
        if access is not None and keys is not None:
            outputs["AccessSecretArn"] = access.secret.id
            made_functions["EdgeKeys"] = keys.edge_keys
        if gateway is not None and cable is not None:
            outputs["CableUrl"] = f"wss://{edge.host}/{STAGE}"
            outputs["CableEndpoint"] = gateway.endpoint
            made_functions |= {"Cable": cable.cable, "Heartbeat": cable.heartbeat}
        for title, made in made_functions.items():
            outputs[f"{title}FunctionName"] = made.function.function_name
            outputs[f"{title}LogGroup"] = made.log_group.log_group_name
        if history is not None:
            outputs["DatabaseName"] = history.database
            outputs |= {f"{title}JobName": job.name for title, job in history.jobs.items()}
        for title, value in outputs.items():
            cdk.CfnOutput(self, title, value=value)
