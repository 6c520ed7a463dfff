"""Serves buffered responses: writes, catch-up reads, long-polls, and the documents."""

from mangum import Mangum

from tailrace.aws.handlers.application import FunctionApplication
from tailrace.aws.handlers.function_url import FunctionUrl

handler = Mangum(FunctionApplication("http").start(), lifespan="off", custom_handlers=[FunctionUrl])
