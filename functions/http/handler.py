"""Answers that have a length: writes, catch-up reads, long-polls, and the documents."""

from mangum import Mangum

from tailrace.aws.adapter import FunctionUrl
from tailrace.aws.function import Function

handler = Mangum(Function("http").started(), lifespan="off", custom_handlers=[FunctionUrl])
