"""Names that tools and tests rely on: logical ids in CloudFormation, and an origin's."""

from __future__ import annotations

from typing import Final

CONTAINERS: Final = "containers"
"""The id of their origin, and the value of switches."""

PLACES: Final = ("functions", CONTAINERS)
"""Where requests may be served."""


def camel_case(name: str) -> str:
    """A function's folder name as a logical id: `edge_keys` becomes `EdgeKeys`."""
    return "".join(map(str.capitalize, name.split("_")))


def logical_id(function: str) -> str:
    """The logical id of a function, as `sam local invoke` expects it."""
    return f"{camel_case(function)}Function"
