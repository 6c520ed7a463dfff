"""Cables that containers serve, with writes and access control."""

from __future__ import annotations

from devtools.local_aws.stack import AwsLocal
from tests.e2e.test_cable import (
    aws,
    stream,
    test_clients_that_drop_and_come_back_miss_nothing,
    test_events_end_and_go_on,
    test_excluded_client_gets_nothing_and_others_get_the_type,
    test_pings_come_by_themselves,
    test_rejected_client_gets_the_reason,
    test_stock_clients,
    test_subscribers_are_told_of_a_deletion,
    test_the_bytes_that_were_appended_are_delivered,
)

__all__ = [
    "aws",
    "stream",
    "test_clients_that_drop_and_come_back_miss_nothing",
    "test_events_end_and_go_on",
    "test_excluded_client_gets_nothing_and_others_get_the_type",
    "test_pings_come_by_themselves",
    "test_rejected_client_gets_the_reason",
    "test_stock_clients",
    "test_subscribers_are_told_of_a_deletion",
    "test_the_bytes_that_were_appended_are_delivered",
]


def test_there_is_no_function_for_cables(closed_local: AwsLocal) -> None:
    assert {"cable", "heartbeat"}.isdisjoint(closed_local.functions)
