"""What operations refer to: headers, responses, schemas and examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from tailrace.protocols.durable_streams.openapi.failures import Kind, Known
from tailrace.protocols.durable_streams.openapi.headers import COMMON, CORS, HEADERS, Json

_BY_LOWER_NAME: Final = {name.lower(): name for name in HEADERS}


class Components:
    """What operations refer to, collected as they do."""

    def __init__(self, known: Mapping[Kind, Known]) -> None:
        self.known = known
        self.headers: dict[str, Json] = {}
        self.responses: dict[str, Json] = {}

    def header(self, name: str, *, always: bool = False, note: str = "") -> Json:
        key = f"{name}.always" if always else name
        self.headers[key] = {**HEADERS[name], "required": True} if always else HEADERS[name]
        reference = {"$ref": f"#/components/headers/{key}"}
        return {**reference, "description": note} if note else reference

    def response(
        self,
        operation: str,
        status: int,
        description: str,
        always: Iterable[str] = (),
        sometimes: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Json:
        headers = {
            name: self.header(name, always=True) for name in dict.fromkeys((*COMMON, *always))
        }
        headers |= {name: self.header(name) for name in CORS}
        for name, note in (sometimes or {}).items():
            headers[name] = self.header(name, note=note)
        name = f"{operation}.{status}"
        self.responses[name] = {"description": description, "headers": headers, **more}
        return {"$ref": f"#/components/responses/{name}"}

    def errors(
        self, operation: str, kinds: Iterable[Kind], *, body: bool = True
    ) -> dict[str, Json]:
        """Answers with one of these errors, one for each status."""
        by_status: dict[int, list[Known]] = {}
        for kind in sorted(kinds, key=list(self.known).index):
            known = self.known[kind]
            by_status.setdefault(known.answer.status, []).append(known)
        return {
            str(status): self._error(operation, status, group, body)
            for status, group in by_status.items()
        }

    def _error(self, operation: str, status: int, group: list[Known], body: bool) -> Json:
        carriers: dict[str, list[str]] = {}
        for known in group:
            for raw, _ in known.answer.headers:
                name = _BY_LOWER_NAME[raw.decode()]
                carriers.setdefault(name, []).append(known.sample.code)
        del carriers["Content-Type"]
        always = [name for name, codes in carriers.items() if len(codes) == len(group)]
        sometimes = {
            name: f"With {_either(codes)}. {HEADERS[name]['description']}"
            for name, codes in carriers.items()
            if name not in always
        }
        codes = [known.sample.code for known in group]
        description = "\n".join(f"- `{known.sample.code}`: {known.when}" for known in group)
        if not body:
            return self.response(
                operation, status, f"{description}\n\nWithout the body.", always, sometimes
            )
        narrowed = {"properties": {"error": {"properties": {"code": {"enum": codes}}}}}
        content = {
            "schema": {"allOf": [{"$ref": "#/components/schemas/Error"}, narrowed]},
            "examples": {code: {"$ref": f"#/components/examples/{code}"} for code in codes},
        }
        return self.response(
            operation,
            status,
            description,
            always,
            sometimes,
            content={"application/json": content},
        )

    def schemas(self) -> dict[str, Json]:
        codes = [known.sample.code for known in self.known.values()]
        return {
            "Error": {
                "type": "object",
                "required": ["error"],
                "properties": {
                    "error": {
                        "type": "object",
                        "required": ["code", "message", "request_id"],
                        "properties": {
                            "code": {
                                "type": "string",
                                "enum": codes,
                                "description": "For programs; never changes.",
                            },
                            "message": {"type": "string", "description": "For people."},
                            "request_id": {
                                "type": "string",
                                "description": "As in `X-Request-ID`, and in the server's log.",
                            },
                        },
                    }
                },
            }
        }

    def examples(self) -> dict[str, Json]:
        return {
            known.sample.code: {
                "summary": known.when,
                "value": orjson.loads(known.answer.body),
                "x-status": known.answer.status,
                "x-headers": [
                    f"{_BY_LOWER_NAME[name.decode()]}: {value.decode()}"
                    for name, value in known.answer.headers
                    if name not in (b"content-type", b"cache-control", b"x-request-id")
                ],
            }
            for known in self.known.values()
        }


def _either(codes: list[str]) -> str:
    return " or ".join(f"`{code}`" for code in codes)
