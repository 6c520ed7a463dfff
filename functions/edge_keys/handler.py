"""Copies keys from the secrets to the edge, every minute."""

from typing import Any

from tailrace.aws.handlers.edge_keys import EdgeKeysHandler

edge_keys = EdgeKeysHandler()


def handler(_event: dict[str, Any], _: object) -> None:
    edge_keys()
