"""What goes wrong, and how it is told: to the platform as JSON, to the log with its whole trace."""

from __future__ import annotations

import json
import sys
import traceback

MESSAGE_CHARS = 8_000
FRAMES = 50
"""What is told to the platform goes into a header where a stream has begun, so it stays small."""


class Fault(Exception):
    """Found by the runtime rather than raised by the app. The class names are what is reported,
    and those that AWS's own runtime has too mean the same there."""


class MalformedHandlerName(Fault):
    pass


class ImportModuleError(Fault):
    pass


class HandlerNotFound(Fault):
    pass


class StartupFailed(Fault):
    pass


class MalformedEvent(Fault):
    pass


class NoResponse(Fault):
    pass


class IncompleteResponse(Fault):
    pass


class DeadlineExceeded(Fault):
    pass


class RuntimeApiError(Fault):
    """The Runtime API does not hand out invocations; nothing is left to be done."""


def kind(error: BaseException) -> str:
    """The error's type as the platform wants it, a category and a reason."""
    name = type(error).__name__.encode("ascii", "replace").decode()
    return f"{'Runtime' if isinstance(error, Fault) else 'Function'}.{name}"


def report(error: BaseException) -> bytes:
    """The error as the JSON that AWS's own runtime would send."""
    origin = error.__cause__ if isinstance(error, Fault) and error.__cause__ else error
    body = {
        "errorType": kind(error) if isinstance(error, Fault) else type(error).__name__,
        "errorMessage": str(error)[:MESSAGE_CHARS],
        "stackTrace": traceback.format_tb(origin.__traceback__)[-FRAMES:],
    }
    return json.dumps(body).encode()


def log(message: str, error: BaseException | None = None) -> None:
    sys.stderr.write(f"asgi_stream: {message}\n")
    if error is not None:
        traceback.print_exception(error)
