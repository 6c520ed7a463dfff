"""Work without a request: changes of the log, and the rotation of the secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devtools.local_aws.event_source import matches
from tailrace.log.append import tombstone
from tailrace.log.state import Entry, Part, Producer, State
from tailrace.store.dynamodb import layout
from tests.integration.infra.stacks import Stacks

MAPPING = "AWS::Lambda::EventSourceMapping"
CHAIN = 7

PLAIN = State(3, 30, 40, 5)
CLOSED = PLAIN._replace(end=3, closer=Producer('"g":1}', 0, 1))
BUSY = PLAIN._replace(seq='"g":1}', producers={'"g":1}': (1, 1)}, spilled=1)


def wakes(stacks: Stacks, item: dict[str, Any], kind: str = "INSERT") -> bool:
    """Whether the function hears of the item when it is put."""
    change = {"Keys": layout.key_of(item), "NewImage": item}
    record = {"eventName": kind, "dynamodb": change}
    patterns = [each["Pattern"] for each in stacks.only(MAPPING)["FilterCriteria"]["Filters"]]
    return any(matches(json.loads(each), record) for each in patterns)


def entry(state: State, body: bytes | None = b'"g":1}') -> dict[str, Any]:
    return layout.entry_item(CHAIN, Entry(state.slot - 1, body, state), "attempt", None)


@pytest.mark.parametrize("state", [PLAIN, CLOSED, BUSY], ids=["plain", "closed", "busy"])
def test_a_deletion_invokes_the_function(dev: Stacks, bare: Stacks, state: State) -> None:
    item = layout.entry_item(CHAIN, tombstone(state, 9), "attempt", None)
    assert wakes(dev, item)
    assert wakes(bare, item)


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
def test_only_deletions_invoke_the_function_without_cables(
    bare: Stacks, item: dict[str, Any]
) -> None:
    assert not wakes(bare, item)


@pytest.mark.parametrize("item", HEARD, ids=HEARD_IDS)
def test_inserts_invoke_the_function_and_changes_do_not(dev: Stacks, item: dict[str, Any]) -> None:
    assert wakes(dev, item)
    assert not wakes(dev, item, "MODIFY")
    assert not wakes(dev, item, "REMOVE")


@pytest.mark.parametrize("item", OTHERS, ids=["producer", "claim"])
def test_other_items_do_not_invoke_the_function_with_cables(
    dev: Stacks, item: dict[str, Any]
) -> None:
    assert not wakes(dev, item)


def test_with_cables_batches_are_delivered_without_a_window(dev: Stacks, bare: Stacks) -> None:
    cables, none = dev.only(MAPPING), bare.only(MAPPING)
    assert (cables["MaximumBatchingWindowInSeconds"], cables["ParallelizationFactor"]) == (0, 10)
    assert none["MaximumBatchingWindowInSeconds"] == 1
    assert "ParallelizationFactor" not in none
    assert dev.function("dispatch")["MemorySize"] == 512
    assert bare.function("dispatch")["MemorySize"] == 256
    assert none["BatchSize"] == 100


def test_the_function_follows_the_stream_from_its_beginning(dev: Stacks) -> None:
    mapping = dev.only(MAPPING)
    assert mapping["FunctionName"] == {"Fn::GetAtt": ["DispatchFunction", "Arn"]}
    assert "StreamArn" in mapping["EventSourceArn"]["Fn::ImportValue"]
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    assert mapping["BatchSize"] == 100


def test_a_failing_batch_is_bisected_and_then_sent_to_the_queue(dev: Stacks) -> None:
    mapping = dev.only(MAPPING)
    (queue,) = dev.resources("AWS::SQS::Queue")
    assert mapping["BisectBatchOnFunctionError"] is True
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["MaximumRetryAttempts"] == 10
    # The stream keeps records for a day.
    assert mapping["MaximumRecordAgeInSeconds"] < 86_400
    assert mapping["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0] == queue


def test_the_queue_is_encrypted_and_takes_only_tls(dev: Stacks) -> None:
    assert dev.only("AWS::SQS::Queue")["SqsManagedSseEnabled"] is True
    (statement,) = dev.only("AWS::SQS::QueuePolicy")["PolicyDocument"]["Statement"]
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
