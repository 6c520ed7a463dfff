"""The function URLs: open to all, and answering nobody but CloudFront."""

from __future__ import annotations

import pytest

from infra.names import logical_id
from tests.integration.infra.stacks import Stacks

MODES = [("http", "BUFFERED"), ("wait", "BUFFERED"), ("live", "RESPONSE_STREAM")]


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_a_url_leads_to_the_current_version(dev: Stacks, name: str, mode: str) -> None:
    target = {"Fn::GetAtt": [logical_id(name), "Arn"]}
    (url,) = (
        url
        for url in dev.resources("AWS::Lambda::Url").values()
        if url["TargetFunctionArn"] == target
    )
    assert url["InvokeMode"] == mode
    assert url["AuthType"] == "NONE"
    assert url["Qualifier"] == "current"


@pytest.mark.parametrize("name", [name for name, _ in MODES])
def test_a_url_has_both_permissions_that_it_needs(dev: Stacks, name: str) -> None:
    (alias,) = (
        alias
        for alias, properties in dev.resources("AWS::Lambda::Alias").items()
        if properties["FunctionName"] == {"Ref": logical_id(name)}
    )
    granted = [
        permission
        for permission in dev.resources("AWS::Lambda::Permission").values()
        if permission["FunctionName"] == {"Ref": alias}
    ]
    invoke, invoke_url = sorted(granted, key=lambda permission: str(permission["Action"]))
    assert invoke["Action"] == "lambda:InvokeFunction"
    assert invoke["InvokedViaFunctionUrl"] is True
    assert invoke_url["Action"] == "lambda:InvokeFunctionUrl"
    assert invoke_url["FunctionUrlAuthType"] == "NONE"


def test_only_function_urls_are_public(dev: Stacks) -> None:
    open_to_all = [
        permission
        for permission in dev.resources("AWS::Lambda::Permission").values()
        if permission["Principal"] == "*"
    ]
    assert len(open_to_all) == 2 * len(MODES)
