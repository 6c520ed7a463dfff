"""Errors, and how they are reported: to the platform as JSON, to the log with a traceback."""

from __future__ import annotations

import json
import sys
import traceback

MESSAGE_CHARS = 8_000
FRAMES = 50
"""Limits of a report, which is sent in a trailer if the response has started."""


class Fault(Exception):
    """An error of the runtime, not of the app. Class names are reported to the platform; those that
    AWS's own runtime also has mean the same."""


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
    """The Runtime API returns no invocations; the process has to exit."""


def kind(error: BaseException) -> str:
    """The error's type in the platform's format, a category and a reason."""
    name = type(error).__name__.encode("ascii", "replace").decode()
    return f"{'Runtime' if isinstance(error, Fault) else 'Function'}.{name}"


def report(error: BaseException) -> bytes:
    """The error as JSON, in the format of AWS's own runtime."""
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
