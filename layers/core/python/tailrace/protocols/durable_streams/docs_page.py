"""The page at /docs: the OpenAPI document for people. One file, no scripts, nothing to load."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

import orjson

from tailrace import __version__
from tailrace.protocols.durable_streams.openapi.guide import EXAMPLE_URL
from tailrace.protocols.durable_streams.openapi.headers import COMMON, MAIN, Json

POLICY: Final = (
    b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
"""What keeps the page honest about loading nothing."""

METHODS: Final = ("put", "post", "get", "head", "delete", "options")
PLACES: Final = {"path": "Path", "query": "Query", "header": "Headers"}

_FENCE = re.compile(r"^```\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
_STRONG = re.compile(r"\*\*(.+?)\*\*")


def page(document: Json) -> str:
    return _filled("docs_page.html", **_Page(document).parts())


def landing_page() -> str:
    return _filled("landing.html", version=__version__, example=escape(_TRY))


def landing_text() -> str:
    return f"""\
Tailrace {__version__}, a Durable Streams server

  docs      {EXAMPLE_URL}/docs
  OpenAPI   {EXAMPLE_URL}/openapi.json
  streams   {EXAMPLE_URL}/v1/streams
  health    {EXAMPLE_URL}/health

Try it:

{_TRY}
"""


_TRY: Final = f"""\
curl -X PUT -H 'Content-Type: text/plain' -d 'hello, world' \\
  {EXAMPLE_URL}{MAIN}hello

curl {EXAMPLE_URL}{MAIN}hello"""


@cache
def _template(name: str) -> Template:
    return Template(Path(__file__).with_name(name).read_text("utf-8"))


def _filled(name: str, **parts: str) -> str:
    return _template(name).substitute(parts)


class _Page:
    def __init__(self, document: Json) -> None:
        self._document = document
        self._same: dict[str, list[str]] = {}
        """For each operation, the other routes that do the same."""
        for method, path, operation in self._operations():
            if "x-same-as" in operation:
                route = f"{method.upper()} {path}"
                self._same.setdefault(operation["x-same-as"], []).append(route)

    def parts(self) -> dict[str, str]:
        info = self._document["info"]
        return {
            "title": escape(info["title"]),
            "version": escape(info["version"]),
            "summary": escape(info["summary"]),
            "contents": self._contents(),
            "guide": prose(info["description"]),
            "operations": "".join(map(self._tag, self._document["tags"])),
            "errors": "".join(
                _error(code, example)
                for code, example in self._document["components"]["examples"].items()
            ),
            "common": ", ".join(f"<code>{name}</code>" for name in COMMON),
        }

    def _operations(self) -> Iterator[tuple[str, str, Json]]:
        for path, item in self._document["paths"].items():
            for method in METHODS:
                if method in item:
                    yield method, path, item[method]

    def _described(self, tag: str) -> Iterator[tuple[str, str, Json]]:
        for method, path, operation in self._operations():
            if tag in operation["tags"] and "x-same-as" not in operation:
                yield method, path, operation

    def _resolved(self, node: Json) -> Json:
        """What a reference points to; what is said beside it wins."""
        if "$ref" not in node:
            return node
        target: Any = self._document
        for key in node["$ref"].removeprefix("#/").split("/"):
            target = target[key.replace("~1", "/")]
        return {**target, **{key: value for key, value in node.items() if key != "$ref"}}

    def _contents(self) -> str:
        headings = re.findall(r"^## (.+)$", self._document["info"]["description"], re.MULTILINE)
        guide = [f'<li><a href="#{_slug(text)}">{escape(text)}</a></li>' for text in headings]
        parts = [f"<h2>Guide</h2><ul>{''.join(guide)}</ul>"]
        for tag in self._document["tags"]:
            links = [
                f'<li><a href="#{operation["operationId"]}">{_method(method)}'
                f"{escape(operation['summary'])}</a></li>"
                for method, _, operation in self._described(tag["name"])
            ]
            parts.append(f"<h2>{escape(tag['name'])}</h2><ul>{''.join(links)}</ul>")
        parts.append('<h2><a href="#errors">Errors</a></h2>')
        return "".join(parts)

    def _tag(self, tag: Json) -> str:
        operations = list(self._described(tag["name"]))
        paths = {path: self._document["paths"][path] for _, path, _ in operations}
        shared = [parameter for item in paths.values() for parameter in item.get("parameters", [])]
        return (
            f'<section id="{_slug(tag["name"])}"><h2>{escape(tag["name"])}</h2>'
            f'<div class="guide">{prose(tag["description"])}{self._parameters(shared)}</div>'
            f"{''.join(self._operation(*operation) for operation in operations)}</section>"
        )

    def _operation(self, method: str, path: str, operation: Json) -> str:
        name = operation["operationId"]
        route = re.sub(r"(\{.+?\})", r"<var>\1</var>", escape(path))
        also = " and ".join(f"<code>{escape(route)}</code>" for route in self._same.get(name, []))
        samples = "".join(map(_sample, operation["x-codeSamples"]))
        return (
            f'<article id="{name}"><header><h3><a href="#{name}">{escape(operation["summary"])}</a>'
            f'</h3><p class="route">{_method(method)}<code>{route}</code></p></header>'
            f"<div>{prose(operation['description'])}"
            + (f'<p class="also">Also: {also}</p>' if also else "")
            + f'</div><aside>{samples}</aside><div class="details">'
            + self._parameters(operation.get("parameters", []))
            + self._body(operation.get("requestBody"))
            + self._responses(operation["responses"])
            + "</div></article>"
        )

    def _parameters(self, given: list[Json]) -> str:
        rows: dict[str, list[str]] = {place: [] for place in PLACES}
        for parameter in map(self._resolved, given):
            rows[parameter["in"]].append(_parameter(parameter))
        return "".join(
            f"<h4>{PLACES[place]}</h4><dl>{''.join(found)}</dl>"
            for place, found in rows.items()
            if found
        )

    def _body(self, body: Json | None) -> str:
        if body is None:
            return ""
        kinds = "".join(
            _row(f"<code>{escape(kind)}</code>", prose(_kind_note(media)))
            for kind, media in body["content"].items()
        )
        need = "required" if body["required"] else "optional"
        return f"<h4>Body <small>{need}</small></h4>{prose(body['description'])}<dl>{kinds}</dl>"

    def _responses(self, responses: Json) -> str:
        found = {status: self._resolved(response) for status, response in responses.items()}
        answers = [self._response(*each) for each in found.items() if each[0] < "400"]
        failures = [_failures(*each) for each in found.items() if each[0] >= "400"]
        return (
            f'<h4>Responses</h4>{"".join(answers)}<div class="failures">{"".join(failures)}</div>'
        )

    def _response(self, status: str, response: Json) -> str:
        headers = "".join(
            self._header(name, self._resolved(header))
            for name, header in response["headers"].items()
            if name not in COMMON
        )
        content = "".join(
            self._content(kind, media) for kind, media in response.get("content", {}).items()
        )
        parts = prose(response["description"]) + content
        parts += f"<dl>{headers}</dl>" if headers else ""
        return f'<div class="response">{_status(status)}<div>{parts}</div></div>'

    def _header(self, name: str, header: Json) -> str:
        note = "" if header.get("required") else " <small>sometimes</small>"
        return _row(f"<code>{escape(name)}</code>{note}", prose(header["description"]))

    def _content(self, kind: str, media: Json) -> str:
        title = f'<p class="kind"><code>{escape(kind)}</code> {prose_inline(_kind_note(media))}</p>'
        if "example" in media:
            return f"{title}<pre><code>{escape(_shown(media['example']))}</code></pre>"
        fields = "".join(self._fields(media.get("schema", {}), ""))
        return f"{title}<dl>{fields}</dl>" if fields else title

    def _fields(self, schema: Json, prefix: str) -> Iterator[str]:
        schema = self._resolved(schema)
        if "items" in schema:
            yield from self._fields(schema["items"], f"{prefix}[].")
        for name, field in schema.get("properties", {}).items():
            label = f"<code>{escape(prefix + name)}</code> <small>{_type(field)}</small>"
            yield _row(label, prose(field.get("description", "")))
            yield from self._fields(field, prefix + name)


def _parameter(parameter: Json) -> str:
    need = " <b>required</b>" if parameter.get("required") else ""
    schema = parameter["schema"]
    label = f"<code>{escape(parameter['name'])}</code> <small>{_type(schema)}{need}</small>"
    note = f" Default: `{schema['default']}`." if schema.get("default") else ""
    return _row(label, prose(parameter["description"] + note))


def _row(term: str, details: str) -> str:
    return f"<div><dt>{term}</dt><dd>{details}</dd></div>"


def _type(schema: Json) -> str:
    options = [option.get("format") or option["type"] for option in schema.get("anyOf", [schema])]
    return escape(" or ".join(options))


def _kind_note(media: Json) -> str:
    note: str = media.get("schema", {}).get("description", "")
    return note


def _sample(sample: Json) -> str:
    label = f"<figcaption>{escape(sample['label'])}</figcaption>" if sample["label"] else ""
    return f"<figure>{label}<pre><code>{escape(sample['source'])}</code></pre></figure>"


def _failures(status: str, response: Json) -> str:
    codes = re.findall(r"^- `(\w+)`", response["description"], re.MULTILINE)
    links = " ".join(f'<a href="#{code}"><code>{code}</code></a>' for code in codes)
    return f"<span>{_status(status)}{links}</span>"


def _error(code: str, example: Json) -> str:
    headers = "".join(f"{line}\n" for line in example["x-headers"])
    body = orjson.dumps(example["value"]).decode()
    return (
        f'<div class="response" id="{code}">{_status(str(example["x-status"]))}'
        f"<div><p><b><code>{code}</code></b></p>{prose(example['summary'])}"
        f"<pre><code>{escape(headers + body)}</code></pre></div></div>"
    )


def _status(status: str) -> str:
    return f'<span class="status s{status[0]}">{status}</span>'


def _method(method: str) -> str:
    return f'<span class="method {method}">{method.upper()}</span>'


def _shown(example: Any) -> str:
    return example.strip() if isinstance(example, str) else orjson.dumps(example).decode()


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


# The little Markdown that our descriptions use


def prose(text: str) -> str:
    """Paragraphs, lists, headings and fenced code."""
    parts: list[str] = []
    for number, part in enumerate(_FENCE.split(text)):
        if number % 2:
            parts.append(f"<pre><code>{escape(part.rstrip())}</code></pre>")
        else:
            parts += map(_block, filter(None, (block.strip() for block in part.split("\n\n"))))
    return "".join(parts)


def prose_inline(text: str) -> str:
    return _STRONG.sub(r"<b>\1</b>", _CODE.sub(r"<code>\1</code>", escape(text, quote=False)))


def _block(block: str) -> str:
    if block.startswith("## "):
        title = block.removeprefix("## ")
        return f'<h2 id="{_slug(title)}">{prose_inline(title)}</h2>'
    if block.startswith("- "):
        items = block.removeprefix("- ").split("\n- ")
        return f"<ul>{''.join(f'<li>{prose_inline(item)}</li>' for item in items)}</ul>"
    return f"<p>{prose_inline(block)}</p>"
