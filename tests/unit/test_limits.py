from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

from devtools.processes import ROOT
from tailrace import limits

LIMITS = {name: value for name, value in vars(limits).items() if name.isupper()}


def test_limits_are_positive_whole_numbers() -> None:
    assert len(LIMITS) > 5
    assert not [name for name, value in LIMITS.items() if not isinstance(value, int) or value <= 0]


def test_every_limit_is_followed_by_its_reason() -> None:
    body = ast.parse(Path(limits.__file__).read_text()).body
    explained = [
        statement.target.id
        for statement, reason in pairwise(body)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(reason, ast.Expr)
        and isinstance(reason.value, ast.Constant)
        and isinstance(reason.value.value, str)
    ]
    assert [name for name in explained if name in LIMITS] == list(LIMITS)


def test_the_documented_limits_are_the_limits() -> None:
    page = (ROOT / "docs" / "limits.md").read_text()
    assert sorted(re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE)) == sorted(LIMITS)
