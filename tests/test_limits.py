from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tailrace import limits

DOCS = Path(__file__).resolve().parent.parent / "docs" / "limits.md"

LIMITS = {name: value for name, value in vars(limits).items() if name.isupper()}


@pytest.fixture(scope="module")
def documented() -> list[str]:
    return re.findall(r"^\| `([A-Z_]+)` \|", DOCS.read_text(), re.MULTILINE)


def test_there_are_limits() -> None:
    assert len(LIMITS) > 5


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_a_whole_number(name: str) -> None:
    assert isinstance(LIMITS[name], int)
    assert LIMITS[name] > 0


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_has_its_reason_beside_it(name: str) -> None:
    body = ast.parse(Path(limits.__file__).read_text()).body
    places = [
        index
        for index, statement in enumerate(body)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and statement.target.id == name
    ]
    (place,) = places
    reason = body[place + 1]
    assert isinstance(reason, ast.Expr)
    assert isinstance(reason.value, ast.Constant)
    assert isinstance(reason.value.value, str)


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_is_documented(name: str, documented: list[str]) -> None:
    assert name in documented, f"docs/limits.md does not name {name}"


def test_nothing_is_documented_that_is_no_limit(documented: list[str]) -> None:
    assert sorted(documented) == sorted(LIMITS)
