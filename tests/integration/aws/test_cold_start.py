"""Modules that a function loads before its first request: a budget kept by not importing."""

from __future__ import annotations

import functools

import pytest

from devtools.cold_start import INIT, run
from scripts.package import build

HEAVY = {"fastapi", "starlette", "pydantic", "boto3", "botocore.session", "aws_xray_sdk", "sqlite3"}
"""Each costs as much as everything else together, and no request for a stream needs it."""

FOR_SOME = {"jwt", "cryptography"}
"""Modules that only tokens of public keys need."""


@functools.cache
def loaded(function: str) -> frozenset[str]:
    """The modules of a function when its init phase is over."""
    return run(build("host"), function, INIT[function]).modules


@pytest.mark.parametrize(
    ("function", "needed"),
    [
        ("http", "tailrace.protocols.durable_streams.routes"),
        ("live", "tailrace.protocols.durable_streams.routes"),
        ("cable", "tailrace.protocols.action_cable.api_gateway.command_handler"),
        ("heartbeat", "tailrace.protocols.action_cable.api_gateway.heartbeat"),
        ("dispatch", "tailrace.protocols.action_cable.api_gateway.delivery"),
        ("purge", "tailrace.protocols.durable_streams.caching"),
    ],
)
def test_the_init_of_a_function_loads_nothing_heavy(function: str, needed: str) -> None:
    modules = loaded(function)
    assert modules >= {needed, "aws_lambda_powertools.metrics", "handler"}
    assert modules & (HEAVY | FOR_SOME) == set()


def test_only_dispatch_imports_the_batch_processor() -> None:
    """It brings the classes of every kind of event along."""
    batches = "aws_lambda_powertools.utilities.batch"
    users = [each for each in INIT if batches in loaded(each)]
    assert users == ["dispatch"]


def test_the_live_function_has_no_adapter_and_the_http_function_no_runtime() -> None:
    assert "mangum" not in loaded("live")
    assert "asgi_stream" not in loaded("http")
