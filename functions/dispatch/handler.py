"""What has to follow a change of the log: it comes through the table's stream."""

from typing import Any

from tailrace.aws.handlers.table_stream import Dispatch

dispatch = Dispatch()


def handler(event: dict[str, Any], _: object) -> dict[str, Any]:
    return dispatch(event)
