"""Access: closed unless somebody opens it, and the edge knows the keys."""

from __future__ import annotations

import json

from tests.integration.infra.stacks import Stacks
from tests.integration.infra.test_functions import variables

SECRET = "AccessSecret"
STORE = "AWS::CloudFront::KeyValueStore"


def run_every_minute(stacks: Stacks) -> set[str]:
    """The functions that are, each without a second attempt."""
    targets = [
        target
        for rule in stacks.resources("AWS::Events::Rule").values()
        if rule.get("ScheduleExpression") == "rate(1 minute)"
        for target in rule["Targets"]
    ]
    assert all(target["RetryPolicy"]["MaximumRetryAttempts"] == 0 for target in targets)
    return {target["Arn"]["Fn::GetAtt"][0] for target in targets}


def test_without_a_switch_a_deployment_is_closed(dev: Stacks, prod: Stacks) -> None:
    for stacks in (dev, prod):
        for name in ("http", "live", "cable"):
            known = variables(stacks, name)
            assert known["TAILRACE_ACCESS"] == "closed"
            assert known["TAILRACE_ACCESS_SECRET"] == {"Fn::GetAtt": [SECRET, "Id"]}


def test_an_open_deployment_has_neither_access_secret_nor_keys(bare: Stacks) -> None:
    for name in ("http", "live"):
        known = variables(bare, name)
        assert (known["TAILRACE_ACCESS"], known["TAILRACE_ACCESS_SECRET"]) == ("open", "")
        assert SECRET not in json.dumps(bare.statements(name))
    assert SECRET not in bare.resources("AWS::SecretsManager::Secret")
    assert not bare.resources(STORE)
    assert "KeyValueStoreAssociations" not in json.dumps(bare.templates)


def test_the_first_secret_is_random_and_long(dev: Stacks) -> None:
    made = dev.resources("AWS::SecretsManager::Secret")[SECRET]["GenerateSecretString"]
    assert made == {
        "ExcludePunctuation": True,
        "GenerateStringKey": "secret",
        "PasswordLength": 48,
        "SecretStringTemplate": "{}",
    }


def test_a_production_secret_outlives_its_stack(dev: Stacks, prod: Stacks) -> None:
    for stacks, name, policy in (
        (dev, "tailrace-dev", "Delete"),
        (prod, "tailrace-prod", "Retain"),
    ):
        assert stacks.templates[name]["Resources"][SECRET]["DeletionPolicy"] == policy


def test_the_viewer_request_function_has_the_store_and_no_other_has(dev: Stacks) -> None:
    (store,) = dev.resources(STORE)
    associated = {
        name: function["FunctionConfig"].get("KeyValueStoreAssociations")
        for name, function in dev.resources("AWS::CloudFront::Function").items()
    }
    ((name, (association,)),) = [each for each in associated.items() if each[1]]
    assert "ViewerRequest" in name
    assert association["KeyValueStoreARN"] == {"Fn::GetAtt": [store, "Arn"]}
    assert "ImportSource" not in dev.only(STORE), "keys are in no template and no bucket"


def test_edge_keys_runs_every_minute_with_both_secrets_and_the_store(dev: Stacks) -> None:
    (store,) = dev.resources(STORE)
    known = variables(dev, "edge_keys")
    assert "OriginSecret" in known["TAILRACE_ORIGIN_SECRET"]["Fn::GetAtt"][0]
    assert known["TAILRACE_ACCESS_SECRET"] == {"Fn::GetAtt": [SECRET, "Id"]}
    assert known["TAILRACE_EDGE_KEYS"] == {"Fn::GetAtt": [store, "Arn"]}
    assert "EdgeKeysFunction" in run_every_minute(dev)


def test_only_edge_keys_may_change_the_key_value_store(dev: Stacks) -> None:
    (store,) = dev.resources(STORE)
    for name in ("http", "live", "cable", "heartbeat", "dispatch", "purge", "rotate_secret"):
        assert store not in json.dumps(dev.statements(name))
    for name in ("heartbeat", "dispatch", "purge", "rotate_secret"):
        assert SECRET not in json.dumps(dev.statements(name))
