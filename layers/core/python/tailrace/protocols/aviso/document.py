"""YAML documents with error messages that name the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Self

import yaml

from tailrace.aws.client.service_access import import_boto
from tailrace.errors import BadSetting

_MAPPING: Final = yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG


class LineMapping(dict[str, Any]):
    """A mapping with the line of each key."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}


_SAFE: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader is ten times as fast, but some builds of PyYAML lack it."""


class _Loader(_SAFE):  # type: ignore[misc]
    """Builds plain values only, and mappings as `LineMapping`."""


def _construct_mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> LineMapping:
    names: set[str] = set()
    for key, _ in node.value:
        before = len(names)
        names.add(key.value)
        if len(names) == before:
            raise yaml.constructor.ConstructorError(
                problem=f"the key '{key.value}' occurs twice", problem_mark=key.start_mark
            )
    loader.flatten_mapping(node)
    mapping = LineMapping()
    for key, value in node.value:
        name = loader.construct_object(key, deep=True)
        if not isinstance(name, str):
            raise yaml.constructor.ConstructorError(
                problem=f"the key '{key.value}' is not a string; put it in quotes",
                problem_mark=key.start_mark,
            )
        mapping[name] = loader.construct_object(value, deep=True)
        mapping.lines[name] = key.start_mark.line + 1
    return mapping


_Loader.add_constructor(_MAPPING, _construct_mapping)


class Section:
    """A mapping in a document. Its methods raise `BadSetting` with the line and the key."""

    def __init__(self, values: LineMapping, source: str, name: str = "", line: int = 1) -> None:
        self.values = values
        self.name = name
        self._source = source
        self._line = line

    @classmethod
    def parse(cls, text: str, source: str) -> Self:
        """Parse a document; `source` is its name in error messages."""
        try:
            values = yaml.load(text, _Loader)  # noqa: S506 - derived from the safe loader
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            line = mark.line + 1 if mark else 1
            raise BadSetting(f"{source} line {line}: {error.problem or error.context}") from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise BadSetting(f"{source} is not YAML: {error}") from None
        if values is None:
            values = LineMapping()
        if not isinstance(values, LineMapping):
            raise BadSetting(f"{source} line 1: expected a mapping (key: value)")
        return cls(values, source)

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def error(self, key: str, reason: str) -> BadSetting:
        line = self.values.lines.get(key, self._line)
        name = f"{self.name}.{key}" if self.name and key else key or self.name
        return BadSetting(f"{self._source} line {line}: {name}: {reason}")

    def refuse_other_keys(self, *keys: str) -> None:
        for key in self.values:
            if key not in keys:
                raise self.error(key, f"unknown key; the known ones are {', '.join(keys)}")

    def section(self, key: str) -> Section:
        """The mapping under a key, which is empty if the key is missing."""
        values = self.values.get(key)
        line = self.values.lines.get(key, self._line)
        name = f"{self.name}.{key}" if self.name else key
        if values is None:
            return Section(LineMapping(), self._source, name, line)
        if not isinstance(values, LineMapping):
            raise self.error(key, "expected a mapping (key: value)")
        return Section(values, self._source, name, line)

    def sections(self) -> dict[str, Section]:
        return {key: self.section(key) for key in self.values}

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str):
            raise self.error(key, self._missing(key) or "expected a string; put it in quotes")
        return value

    def flag(self, key: str) -> bool:
        value = self.values.get(key)
        if not isinstance(value, bool):
            raise self.error(key, self._missing(key) or "expected true or false")
        return value

    def number(self, key: str, *, minimum: float = 1) -> int:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, self._missing(key) or "expected an integer")
        if value < minimum:
            raise self.error(key, f"must be at least {minimum}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.values.get(key)
        if not isinstance(values, list) or not values:
            raise self.error(key, self._missing(key) or "expected a list with at least one string")
        for value in values:
            if not isinstance(value, str):
                raise self.error(key, f"{value!r} is not a string; put it in quotes")
        return tuple(values)

    def _missing(self, key: str) -> str:
        return "" if key in self.values else "is missing"


def read_document(location: str, endpoint_url: str = "") -> Section:
    """Read a document from a file or from S3 (`s3://bucket/key`)."""
    if location.startswith("s3://"):
        return Section.parse(_read_from_s3(location, endpoint_url), location)
    try:
        return Section.parse(Path(location).read_text(encoding="utf-8"), location)
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"TAILRACE_AVISO_SCHEMA: cannot read {location}: {error}") from None


def _read_from_s3(location: str, endpoint_url: str) -> str:
    boto3 = import_boto("boto3")
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, key = location.removeprefix("s3://").partition("/")
    try:
        client = boto3.client("s3", endpoint_url=endpoint_url or None)
        body: bytes = client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return body.decode()
    except (BotoCoreError, ClientError, UnicodeDecodeError) as error:
        raise BadSetting(f"TAILRACE_AVISO_SCHEMA: cannot read {location}: {error}") from None
