"""Work without a request: changes of the log, and the rotation of the secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devtools.local_aws.event_source import matches
from infra.names import camel_case
from tailrace.log.append import tombstone
from tailrace.log.state import Entry, Part, Producer, State
from tailrace.store.dynamodb import layout
from tests.integration.infra.stacks import Stacks

MAPPING = "AWS::Lambda::EventSourceMapping"
CHAIN = 7

PLAIN = State(3, 30, 40, 5)
CLOSED = PLAIN._replace(end=3, closer=Producer('"g":1}', 0, 1))
BUSY = PLAIN._replace(seq='"g":1}', producers={'"g":1}': (1, 1)}, spilled=1)


def mapping_of(stacks: Stacks, name: str) -> dict[str, Any]:
    function = {"Fn::GetAtt": [f"{camel_case(name)}Function", "Arn"]}
    (mapping,) = (
        each for each in stacks.resources(MAPPING).values() if each["FunctionName"] == function
    )
    return mapping


def wakes(stacks: Stacks, name: str, item: dict[str, Any], kind: str = "INSERT") -> bool:
    """Whether a function is invoked when the item is put."""
    change = {"Keys": layout.key_of(item), "NewImage": item}
    record = {"eventName": kind, "dynamodb": change}
    filters = mapping_of(stacks, name)["FilterCriteria"]["Filters"]
    return any(matches(json.loads(each["Pattern"]), record) for each in filters)


def entry(state: State, body: bytes | None = b'"g":1}') -> dict[str, Any]:
    return layout.entry_item(CHAIN, Entry(state.slot - 1, body, state), "attempt", None)


@pytest.mark.parametrize("state", [PLAIN, CLOSED, BUSY], ids=["plain", "closed", "busy"])
def test_a_deletion_invokes_purge_only_if_it_is_marked(
    dev: Stacks, bare: Stacks, state: State
) -> None:
    item = layout.entry_item(CHAIN, tombstone(state, 9), "attempt", None)
    assert wakes(dev, "dispatch", item)
    for stacks in (dev, bare):
        assert not wakes(stacks, "purge", item)
        assert wakes(stacks, "purge", {**item, "h": layout.number(1)})


NAME = {**layout.name_key('"g":1}'), "i": layout.text("7")}
PARTS = [Part(3, 3), Part(3, 3, Producer('"g":1}', 1, 1), '"g":1}')]
SEVERAL = layout.entry_item(CHAIN, Entry(2, b"onetwo", BUSY, parts=PARTS), "attempt", None)
HEARD = [entry(PLAIN), entry(BUSY), SEVERAL, entry(CLOSED, None), NAME]
HEARD_IDS = ["append", "append of a producer", "several appends", "close", "name"]
OTHERS = [
    {**layout.producer_key(CHAIN, '"g":1}'), "e": layout.number(1)},
    {**layout.upload_intent_key("bodies/1/2"), "g": layout.text("b1"), "d": layout.number(1)},
]


@pytest.mark.parametrize(
    "item",
    [*HEARD, *OTHERS],
    ids=[*HEARD_IDS, "producer", "claim"],
)
def test_only_deletions_invoke_purge(dev: Stacks, item: dict[str, Any]) -> None:
    assert not wakes(dev, "purge", item)


@pytest.mark.parametrize("item", HEARD, ids=HEARD_IDS)
def test_inserts_invoke_dispatch_and_changes_do_not(dev: Stacks, item: dict[str, Any]) -> None:
    assert wakes(dev, "dispatch", item)
    assert not wakes(dev, "dispatch", item, "MODIFY")
    assert not wakes(dev, "dispatch", item, "REMOVE")


@pytest.mark.parametrize("item", OTHERS, ids=["producer", "claim"])
def test_other_items_do_not_invoke_dispatch(dev: Stacks, item: dict[str, Any]) -> None:
    assert not wakes(dev, "dispatch", item)


def test_batches_are_delivered_without_a_window_and_purged_with_one(dev: Stacks) -> None:
    dispatch, purge = mapping_of(dev, "dispatch"), mapping_of(dev, "purge")
    options = ("MaximumBatchingWindowInSeconds", "BatchSize", "ParallelizationFactor")
    assert [dispatch.get(each) for each in options] == [0, 100, 10]
    assert [purge.get(each) for each in options] == [2, 1000, None]


@pytest.mark.parametrize("name", ["dispatch", "purge"])
def test_a_function_follows_the_stream_from_its_beginning(dev: Stacks, name: str) -> None:
    mapping = mapping_of(dev, name)
    assert "StreamArn" in mapping["EventSourceArn"]["Fn::ImportValue"]
    assert mapping["StartingPosition"] == "TRIM_HORIZON"


def test_two_functions_follow_the_stream_which_is_all_that_it_allows(
    dev: Stacks, bare: Stacks
) -> None:
    assert len(dev.resources(MAPPING)) == 2
    assert len(bare.resources(MAPPING)) == 1, "there is nothing to dispatch"


def test_a_failing_batch_is_bisected_and_then_sent_to_the_queue(dev: Stacks) -> None:
    mapping = mapping_of(dev, "dispatch")
    assert mapping["BisectBatchOnFunctionError"] is True
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["MaximumRetryAttempts"] == 10


def test_a_failing_purge_is_repeated_as_a_whole(dev: Stacks) -> None:
    mapping = mapping_of(dev, "purge")
    for option in ("BisectBatchOnFunctionError", "FunctionResponseTypes", "MaximumRetryAttempts"):
        assert option not in mapping


@pytest.mark.parametrize("name", ["dispatch", "purge"])
def test_a_batch_that_is_given_up_goes_to_the_functions_queue(dev: Stacks, name: str) -> None:
    mapping = mapping_of(dev, name)
    # The stream keeps records for a day.
    assert mapping["MaximumRecordAgeInSeconds"] < 86_400
    queue = mapping["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
    assert queue.startswith(camel_case(name))
    assert queue in dev.resources("AWS::SQS::Queue")


def test_the_queues_are_encrypted_and_take_only_tls(dev: Stacks) -> None:
    for queue in dev.resources("AWS::SQS::Queue").values():
        assert queue["SqsManagedSseEnabled"] is True
    for policy in dev.resources("AWS::SQS::QueuePolicy").values():
        (statement,) = policy["PolicyDocument"]["Statement"]
        assert statement["Effect"] == "Deny"
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def origin_secret(stacks: Stacks) -> str:
    """Its logical id."""
    secrets = stacks.resources("AWS::SecretsManager::Secret")
    (name,) = (name for name in secrets if name.startswith("OriginSecret"))
    return name


def test_the_secret_is_generated_and_fits_into_a_header(dev: Stacks) -> None:
    secret = dev.resources("AWS::SecretsManager::Secret")[origin_secret(dev)]
    assert secret["GenerateSecretString"] == {"ExcludePunctuation": True, "PasswordLength": 48}


def test_the_secret_is_rotated_every_month(dev: Stacks) -> None:
    schedule = dev.only("AWS::SecretsManager::RotationSchedule")
    assert schedule["RotationRules"] == {"AutomaticallyAfterDays": 30}
    assert schedule["RotationLambdaARN"] == {"Fn::GetAtt": ["RotateSecretFunction", "Arn"]}


def test_only_secrets_manager_may_rotate_and_only_this_secret(dev: Stacks) -> None:
    (permission,) = (
        permission
        for permission in dev.resources("AWS::Lambda::Permission").values()
        if permission["FunctionName"] == {"Fn::GetAtt": ["RotateSecretFunction", "Arn"]}
    )
    secret = origin_secret(dev)
    assert permission["Principal"] == "secretsmanager.amazonaws.com"
    assert permission["SourceArn"] == {"Ref": secret}
    assert permission["SourceAccount"] == {"Ref": "AWS::AccountId"}


def test_rotation_can_be_turned_off(bare: Stacks) -> None:
    assert not bare.resources("AWS::SecretsManager::RotationSchedule")
    assert bare.function("rotate_secret")
