"""A new secret between CloudFront and the functions, in the four steps of Secrets Manager."""

from typing import Any

from tailrace.aws.handlers.rotate_secret import Rotation

rotation = Rotation()


def handler(event: dict[str, Any], _: object) -> None:
    rotation(event)
