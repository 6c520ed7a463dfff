"""Serves long-polls: it mostly waits. It may only read, and renew the TTLs of what is read."""

from mangum import Mangum

from tailrace.aws.handlers.application import FunctionApplication
from tailrace.aws.handlers.function_url import FunctionUrl

application = FunctionApplication("wait", read_only=True, read_only_renews=True)
handler = Mangum(application.start(), lifespan="off", custom_handlers=[FunctionUrl])
