"""The context of an invocation, from the headers of the Runtime API."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any


class Context:
    """`aws.context` in the scope; its attributes are those of AWS's own Python runtime."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.aws_request_id = headers["lambda-runtime-aws-request-id"]
        self.invocation_id = headers.get("lambda-runtime-invocation-id")
        """To be sent back with the response, if the platform sends one."""
        self.deadline = int(headers["lambda-runtime-deadline-ms"]) / 1000
        """In seconds since 1970."""
        self.invoked_function_arn = headers.get("lambda-runtime-invoked-function-arn", "")
        self.xray_trace_id = headers.get("lambda-runtime-trace-id")
        self.tenant_id = headers.get("lambda-runtime-aws-tenant-id")
        self.client_context = _json(headers.get("lambda-runtime-client-context"))
        self.cognito_identity = _json(headers.get("lambda-runtime-cognito-identity"))
        self.function_name = os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "")
        self.function_version = os.environ.get("AWS_LAMBDA_FUNCTION_VERSION", "")
        self.memory_limit_in_mb = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
        self.log_group_name = os.environ.get("AWS_LAMBDA_LOG_GROUP_NAME", "")
        self.log_stream_name = os.environ.get("AWS_LAMBDA_LOG_STREAM_NAME", "")

    def seconds_left(self) -> float:
        return self.deadline - time.time()

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int(self.seconds_left() * 1000))


def _json(value: str | None) -> Any:
    try:
        return json.loads(value) if value else None
    except ValueError:
        return None
