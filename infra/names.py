"""Names in CloudFormation, which tools and tests rely on."""

from __future__ import annotations


def camel_case(name: str) -> str:
    """A function's folder name as CloudFormation allows it: `edge_keys` becomes `EdgeKeys`."""
    return "".join(map(str.capitalize, name.split("_")))


def logical_id(function: str) -> str:
    """The logical id of a function, by which `sam local invoke` and people call it."""
    return f"{camel_case(function)}Function"
