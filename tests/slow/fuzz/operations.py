"""The tests that test_schemathesis.py runs; to load them takes seconds, so pytest finds none here.

`python -m pytest -n0 tests/slow/fuzz/operations.py -k PUT` runs some of them.
"""

from __future__ import annotations

import requests

from devtools.server import Server
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

schema = loaded(DOCUMENT, examples=40)


@schema.parametrize()  # type: ignore[untyped-decorator]
@unhurried
def test_answers_are_as_described(case: Case, fuzzed: Server, session: requests.Session) -> None:
    assert_as_described(case, fuzzed, session)


def test_sequences_are_as_described(fuzzed: Server, session: requests.Session) -> None:
    assert_sequences_as_described(schema, fuzzed, session, sequences=30)
