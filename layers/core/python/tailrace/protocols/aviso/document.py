"""A YAML document whose mistakes are told with their line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Self

import yaml

from tailrace.errors import BadSetting

_MAPPING: Final = yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG


class Lined(dict[str, Any]):
    """A mapping that knows the lines of its keys."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}


_SAFE: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one of libyaml is ten times as fast, and not in every build."""


class _Loader(_SAFE):  # type: ignore[misc]
    """Builds nothing but plain values, and mappings as `Lined`."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> Lined:
    named: set[str] = set()
    for key, _ in node.value:
        before = len(named)
        named.add(key.value)
        if len(named) == before:
            raise yaml.constructor.ConstructorError(
                problem=f"'{key.value}' is there twice", problem_mark=key.start_mark
            )
    loader.flatten_mapping(node)
    lined = Lined()
    for key, value in node.value:
        name = loader.construct_object(key, deep=True)
        if not isinstance(name, str):
            raise yaml.constructor.ConstructorError(
                problem=f"'{key.value}' is no text; put it in quotes", problem_mark=key.start_mark
            )
        lined[name] = loader.construct_object(value, deep=True)
        lined.lines[name] = key.start_mark.line + 1
    return lined


_Loader.add_constructor(_MAPPING, _mapping)


class Section:
    """A mapping of the document and its place in it; what is wrong is a `BadSetting`."""

    def __init__(self, values: Lined, source: str, name: str = "", line: int = 1) -> None:
        self.values = values
        self.name = name
        self._source = source
        self._line = line

    @classmethod
    def parse(cls, text: str, source: str) -> Self:
        """`source`: what the document is called in messages."""
        try:
            values = yaml.load(text, _Loader)  # noqa: S506 - it is derived from the safe one
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            line = mark.line + 1 if mark else 1
            raise BadSetting(f"{source} line {line}: {error.problem or error.context}") from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise BadSetting(f"{source} is not YAML: {error}") from None
        if values is None:
            values = Lined()
        if not isinstance(values, Lined):
            raise BadSetting(f"{source} line 1: expected a mapping of names to values")
        return cls(values, source)

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def bad(self, key: str, why: str) -> BadSetting:
        line = self.values.lines.get(key, self._line)
        name = f"{self.name}.{key}" if self.name and key else key or self.name
        return BadSetting(f"{self._source} line {line}: {name}: {why}")

    def only(self, *keys: str) -> None:
        for key in self.values:
            if key not in keys:
                raise self.bad(key, f"there is no such key; it may have {', '.join(keys)}")

    def section(self, key: str) -> Section:
        """The mapping under a key; an empty one where there is none."""
        values = self.values.get(key)
        line = self.values.lines.get(key, self._line)
        name = f"{self.name}.{key}" if self.name else key
        if values is None:
            return Section(Lined(), self._source, name, line)
        if not isinstance(values, Lined):
            raise self.bad(key, "expected a mapping of names to values")
        return Section(values, self._source, name, line)

    def sections(self) -> dict[str, Section]:
        return {key: self.section(key) for key in self.values}

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str):
            raise self.bad(key, self._missing(key) or "expected text; put it in quotes")
        return value

    def flag(self, key: str) -> bool:
        value = self.values.get(key)
        if not isinstance(value, bool):
            raise self.bad(key, self._missing(key) or "expected true or false")
        return value

    def number(self, key: str, *, least: float = 1) -> int:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.bad(key, self._missing(key) or "expected a whole number")
        if value < least:
            raise self.bad(key, f"must be at least {least}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.values.get(key)
        if not isinstance(values, list) or not values:
            raise self.bad(key, self._missing(key) or "expected a list with at least one text")
        for value in values:
            if not isinstance(value, str):
                raise self.bad(key, f"{value!r} is no text; put it in quotes")
        return tuple(values)

    def _missing(self, key: str) -> str:
        return "" if key in self.values else "it is missing"


def read(place: str, endpoint_url: str = "") -> Section:
    """The document in a file, or in an object of S3 (`s3://bucket/key`)."""
    if place.startswith("s3://"):
        return Section.parse(_from_s3(place, endpoint_url), place)
    try:
        return Section.parse(Path(place).read_text(encoding="utf-8"), place)
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"TAILRACE_AVISO_SCHEMA: cannot read {place}: {error}") from None


def _from_s3(place: str, endpoint_url: str) -> str:
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, key = place.removeprefix("s3://").partition("/")
    try:
        client = boto3.client("s3", endpoint_url=endpoint_url or None)
        body: bytes = client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return body.decode()
    except (BotoCoreError, ClientError, UnicodeDecodeError) as error:
        raise BadSetting(f"TAILRACE_AVISO_SCHEMA: cannot read {place}: {error}") from None
