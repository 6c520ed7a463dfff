"""What the edge knows of the access secret: brought up to date every minute."""

from typing import Any

from tailrace.aws.handlers.edge_keys import EdgeStore

store = EdgeStore()


def handler(_event: dict[str, Any], _: object) -> None:
    store()
