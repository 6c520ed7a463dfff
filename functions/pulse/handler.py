"""What is done by the clock: pings, and what is due."""

from typing import Any

from tailrace.aws.pulse import Pulse

pulse = Pulse()


def handler(event: dict[str, Any], context: object) -> None:
    pulse(event, context)
