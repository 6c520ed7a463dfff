"""Filter patterns of an event source mapping."""

from __future__ import annotations

from typing import Any

import pytest

from devtools.local_aws.event_source import matches

RECORD = {
    "eventName": "INSERT",
    "dynamodb": {"Keys": {"p": {"S": "C1"}}, "NewImage": {"r": {"S": '{"a":2,"g":1}'}}},
}


@pytest.mark.parametrize(
    ("pattern", "passes"),
    [
        ({"eventName": ["INSERT"]}, True),
        ({"eventName": ["MODIFY", "INSERT"]}, True),
        ({"eventName": ["REMOVE"]}, False),
        ({"dynamodb": {"Keys": {"p": {"S": [{"prefix": "C"}]}}}}, True),
        ({"dynamodb": {"Keys": {"p": {"S": [{"prefix": "N"}]}}}}, False),
        ({"dynamodb": {"NewImage": {"r": {"S": [{"suffix": '"g":1}'}]}}}}, True),
        ({"dynamodb": {"NewImage": {"r": {"S": [{"suffix": '"g":2}'}]}}}}, False),
        ({"dynamodb": {"NewImage": {"other": {"S": [{"prefix": ""}]}}}}, False),
        ({"dynamodb": {"OldImage": [{"exists": False}]}}, True),
        ({"dynamodb": {"NewImage": [{"exists": False}]}}, False),
        ({"eventName": ["INSERT"], "dynamodb": {"Keys": {"p": {"S": ["C2"]}}}}, False),
    ],
)
def test_a_record_passes_where_every_key_of_the_pattern_does(
    pattern: dict[str, Any], passes: bool
) -> None:
    assert matches(pattern, RECORD) is passes


def test_unknown_filter_rules_are_refused() -> None:
    with pytest.raises(NotImplementedError):
        matches({"eventName": [{"numeric": [">", 1]}]}, RECORD)
