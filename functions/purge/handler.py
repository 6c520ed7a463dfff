"""Purges deleted streams from CloudFront."""

from typing import Any

from tailrace.aws.handlers.purge import PurgeHandler

purge = PurgeHandler()


def handler(event: dict[str, Any], _: object) -> None:
    purge(event)
