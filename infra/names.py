"""Logical ids in CloudFormation; tools and tests rely on them."""

from __future__ import annotations


def camel_case(name: str) -> str:
    """A function's folder name as a logical id: `edge_keys` becomes `EdgeKeys`."""
    return "".join(map(str.capitalize, name.split("_")))


def logical_id(function: str) -> str:
    """The logical id of a function, as `sam local invoke` expects it."""
    return f"{camel_case(function)}Function"
