"""Constraint objects, tested at and around every bound."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.protocols.aviso.constraints import OneOf, parse_constraint
from tailrace.protocols.aviso.error_codes import BadField
from tailrace.protocols.aviso.field_handlers import (
    DateHandler,
    EnumHandler,
    ExpverHandler,
    FloatHandler,
    Handler,
    IntHandler,
    PolygonHandler,
    StringHandler,
    TimeHandler,
)

INT = IntHandler(name="f", required=False, range=(-10, 10))
FLOAT = FloatHandler(name="f", required=False, range=(-10.0, 10.0))
ENUM = EnumHandler(name="f", required=False, values=("storm", "Flood", "fire"))


@pytest.mark.parametrize(
    ("handler", "value", "inside", "outside"),
    [
        (INT, {"eq": 4}, [4], [3, 5]),
        (INT, {"eq": -10}, [-10], [-9]),
        (INT, {"in": [1, 3]}, [1, 3], [0, 2, 4]),
        (INT, {"in": [1]}, [1], [2]),
        (INT, {"in": [1, 1]}, [1], [2]),
        (INT, {"gt": 4}, [5, 10], [4, 3]),
        (INT, {"gte": 4}, [4, 5], [3]),
        (INT, {"lt": 4}, [3, -10], [4, 5]),
        (INT, {"lte": 4}, [4, 3], [5]),
        (INT, {"gt": 10}, [], [10, 9]),
        (INT, {"lt": -10}, [], [-10]),
        (INT, {"between": [2, 4]}, [2, 3, 4], [1, 5]),
        (INT, {"between": [3, 3]}, [3], [2, 4]),
        (INT, {"between": [-10, 10]}, [-10, 0, 10], []),
        (FLOAT, {"eq": 4}, [4.0], [4.000001, 3.999999]),
        (FLOAT, {"eq": 0.1}, [0.1], [0.1000000001]),
        (FLOAT, {"eq": 0}, [0.0, -0.0], [1e-300]),
        (FLOAT, {"in": [1.5, 2]}, [1.5, 2.0], [1.4, 2.1]),
        (FLOAT, {"gt": 1.5}, [1.5000001], [1.5, 1.4]),
        (FLOAT, {"gte": 1.5}, [1.5, 1.6], [1.4999999]),
        (FLOAT, {"lt": 1.5}, [1.4999999], [1.5]),
        (FLOAT, {"lte": 1.5}, [1.5], [1.5000001]),
        (FLOAT, {"between": [-1, 1.5]}, [-1.0, 0.0, 1.5], [-1.0001, 1.5001]),
        (ENUM, {"eq": "storm"}, ["storm"], ["flood", "fire"]),
        (ENUM, {"eq": "STORM"}, ["storm"], ["flood"]),
        (ENUM, {"eq": "flood"}, ["flood"], ["storm"]),
        (ENUM, {"in": ["Storm", "FIRE"]}, ["storm", "fire"], ["flood"]),
    ],
)
def test_a_constraint_matches_values_within_its_bounds(
    handler: Handler, value: dict[str, Any], inside: list[Any], outside: list[Any]
) -> None:
    constraint = parse_constraint(handler, value)
    for candidates, expected in ((inside, True), (outside, False)):
        for each in candidates:
            if isinstance(constraint, OneOf):
                assert (each in constraint.values) is expected, each
            else:
                assert constraint.contains(each) is expected, each


@pytest.mark.parametrize(
    ("handler", "value"),
    [
        (INT, {}), (INT, {"gt": 1, "lt": 5}), (INT, {"ne": 4}), (INT, {"EQ": 4}), (INT, {"": 4}),
        (INT, {"eq": 4.0}), (INT, {"eq": "4"}), (INT, {"eq": None}), (INT, {"eq": True}),
        (INT, {"eq": [4]}), (INT, {"eq": {"eq": 4}}), (INT, {"gt": 1.5}), (INT, {"gte": "1"}),
        (INT, {"eq": 11}), (INT, {"gt": 11}), (INT, {"lt": -11}), (INT, {"lte": 11}),
        (INT, {"in": []}), (INT, {"in": 4}), (INT, {"in": [1, "2"]}), (INT, {"in": [1, 11]}),
        (INT, {"in": {"1": 1}}), (INT, {"between": [1]}), (INT, {"between": [1, 2, 3]}),
        (INT, {"between": [4, 2]}), (INT, {"between": 3}), (INT, {"between": [1, 11]}),
        (INT, {"between": [1.0, 2]}), (INT, {"between": []}),
        (FLOAT, {}), (FLOAT, {"eq": "1.5"}), (FLOAT, {"eq": True}), (FLOAT, {"gt": 10.1}),
        (FLOAT, {"lt": None}), (FLOAT, {"in": []}), (FLOAT, {"between": [2.5, 1]}),
        (FLOAT, {"between": [1, 10.5]}), (FLOAT, {"in": [1, 20]}), (FLOAT, {"like": 1}),
        (ENUM, {"eq": "gale"}), (ENUM, {"in": ["storm", "gale"]}), (ENUM, {"in": []}),
        (ENUM, {"eq": 1}), (ENUM, {"in": [1]}), (ENUM, {"gt": "storm"}), (ENUM, {"in": "storm"}),
        (ENUM, {"between": ["fire", "storm"]}), (ENUM, {}), (ENUM, {"eq": ["storm"]}),
        (StringHandler(name="f", required=False), {"eq": "a"}),
        (DateHandler(name="f", required=False), {"gt": "20260101"}),
        (TimeHandler(name="f", required=False), {"eq": "0600"}),
        (ExpverHandler(name="f", required=False), {"in": ["0001"]}),
        (PolygonHandler(name="f", required=False), {"eq": "0,0"}),
    ],
)  # fmt: skip
def test_invalid_constraints_are_refused(handler: Handler, value: dict[str, Any]) -> None:
    with pytest.raises(BadField, match="field 'f'"):
        parse_constraint(handler, value)
