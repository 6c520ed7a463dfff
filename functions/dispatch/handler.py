"""Delivers new entries, which arrive as records of the table's stream, to WebSockets."""

from typing import Any

from tailrace.aws.handlers.table_stream import TableStreamHandler

dispatch = TableStreamHandler()


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    return dispatch(event, context)
