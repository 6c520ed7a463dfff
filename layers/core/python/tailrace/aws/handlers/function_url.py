"""Function-URL events for Mangum, which would otherwise alter paths, bodies and headers."""

from __future__ import annotations

import base64
from typing import Any

from mangum.handlers import HTTPGateway
from mangum.types import Response, Scope


class FunctionUrl(HTTPGateway):
    """An event of payload version 2.0 from a function URL."""

    @property
    def scope(self) -> Scope:
        scope = super().scope
        # Keep the path as it was sent: `%2F` is not a slash.
        scope["raw_path"] = self.event["rawPath"].encode()
        return scope

    def __call__(self, response: Response) -> dict[str, Any]:
        """Encode every body as base64: as JSON, text with many quotes would outgrow the limit."""
        headers: dict[str, str] = {}
        cookies: list[str] = []
        for raw_name, raw_value in response["headers"]:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            if name == "set-cookie":
                cookies.append(value)
            elif name != "content-length":  # Lambda adds its own, and would send both.
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return {
            "statusCode": response["status"],
            "headers": headers,
            "cookies": cookies,
            "body": base64.b64encode(response["body"]).decode(),
            "isBase64Encoded": True,
        }
