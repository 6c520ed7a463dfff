"""Responses are as the OpenAPI document says; tests/slow/fuzz sends more requests."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import httpx
import pytest
import requests
from hypothesis import given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from devtools.server import Server
from tailrace import docs
from tests.integration.fuzz.described import (
    DOCUMENT,
    Case,
    assert_as_described,
    assert_sequences_as_described,
    fuzzed,
    loaded,
    session,
    unhurried,
)

__all__ = ["fuzzed", "session"]

EXAMPLES = 8
"""Of each operation, once as described and once not."""
SEQUENCES = 4


@pytest.fixture(scope="module")
def schema() -> Any:
    """Without the second prefix of streams, which leads to the same operations."""
    return loaded(DOCUMENT).exclude(path="/ds/{path}")


def test_the_server_serves_this_document(fuzzed: Server) -> None:
    served = httpx.get(f"{fuzzed.url}/openapi.json", trust_env=False).text
    assert json.loads(served.replace(fuzzed.url, docs.EXAMPLE_URL)) == DOCUMENT


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_answers_are_as_described(
    schema: Any, mode: GenerationMode, fuzzed: Server, session: requests.Session
) -> None:
    asked = set()
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(unhurried, max_examples=EXAMPLES)
        @given(case=operation.as_strategy(mode))
        def ask(case: Case) -> None:
            assert_as_described(case, fuzzed, session)

        # An operation without parameters cannot be asked for in a wrong way.
        with contextlib.suppress(Unsatisfiable):
            ask()
        asked.add(operation.label)
    assert "PUT /v1/stream/{path}" in asked


def test_sequences_are_as_described(schema: Any, fuzzed: Server, session: requests.Session) -> None:
    assert_sequences_as_described(schema, fuzzed, session, sequences=SEQUENCES)
