"""Rotates the origin secret, in the four steps of Secrets Manager."""

from typing import Any

from tailrace.aws.handlers.rotate_secret import RotateSecretHandler

rotation = RotateSecretHandler()


def handler(event: dict[str, Any], _: object) -> None:
    rotation(event)
