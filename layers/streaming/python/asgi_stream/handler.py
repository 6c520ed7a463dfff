"""Imports the app that `_HANDLER` names."""

from __future__ import annotations

import importlib

from asgi_stream.asgi import App
from asgi_stream.faults import HandlerNotFound, ImportModuleError, MalformedHandlerName


def load(handler: str) -> App:
    """Import `module.attribute`; the module may also be a path, `package/module.attribute`."""
    name, _, attribute = handler.replace("/", ".").rpartition(".")
    if not name:
        raise MalformedHandlerName(f"the handler {handler!r} is not of the form module.attribute")
    try:
        module = importlib.import_module(name)
    except (ImportError, SyntaxError) as error:
        raise ImportModuleError(f"unable to import module {name!r}: {error}") from error
    app = getattr(module, attribute, None)
    if not callable(app):
        raise HandlerNotFound(f"module {name!r} has no callable {attribute!r}")
    loaded: App = app
    return loaded
