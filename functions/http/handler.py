"""Answers that have a length: writes, catch-up reads, long-polls, and the documents."""

from mangum import Mangum

from tailrace.aws.handlers.application import Function
from tailrace.aws.handlers.function_url import FunctionUrl

handler = Mangum(Function("http").started(), lifespan="off", custom_handlers=[FunctionUrl])
