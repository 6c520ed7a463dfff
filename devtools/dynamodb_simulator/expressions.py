"""Parses DynamoDB's expressions, with a cache: conditions, key conditions, updates, projections.

Parts of the language that Tailrace does not use are refused.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from devtools.dynamodb_simulator.values import (
    ORDERED,
    Invalid,
    Item,
    Value,
    added,
    comparable,
    same,
    summed,
)

Values = Mapping[str, Value]
Operand = Callable[[Item, Values], Value | None]
Test = Callable[[Item, Values], bool]

TOKEN = re.compile(r"\s*(?:([#:]?[A-Za-z_0-9]+)|(<>|<=|>=|[=<>(),+\-])|(\S))")
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
PREFIXED = frozenset("SB")
SECTIONS = ("SET", "REMOVE", "ADD")
RESERVED = frozenset(
    files("moto").joinpath("dynamodb/parsing/reserved_keywords.txt").read_text("ascii").split()
)


@dataclass
class Used:
    """The names and values that an expression refers to."""

    names: set[str] = field(default_factory=set)
    """With the `#`."""
    values: set[str] = field(default_factory=set)
    """With the `:`."""
    attributes: set[str] = field(default_factory=set)


class Condition(NamedTuple):
    test: Test
    used: Used


class KeyTest(NamedTuple):
    """One comparison: `s BETWEEN :a AND :b` is `("s", "BETWEEN", (":a", ":b"))`."""

    attribute: str
    comparison: str
    values: tuple[str, ...]


class KeyCondition(NamedTuple):
    tests: tuple[KeyTest, ...]
    used: Used


class Update(NamedTuple):
    sets: tuple[tuple[str, Operand], ...]
    removes: tuple[str, ...]
    adds: tuple[tuple[str, str], ...]
    used: Used

    @property
    def targets(self) -> frozenset[str]:
        return frozenset([*(n for n, _ in self.sets), *self.removes, *(n for n, _ in self.adds)])

    def apply(self, item: Item, values: Values) -> Item:
        """Apply the update; all operands are read from the old item."""
        after = dict(item)
        for name, operand in self.sets:
            value = operand(item, values)
            if value is None:
                raise Invalid(
                    "The provided expression refers to an attribute that does not exist in the item"
                )
            after[name] = value
        for name in self.removes:
            after.pop(name, None)
        for name, value_name in self.adds:
            after[name] = summed(item.get(name), values[value_name])
        return after


class Projection(NamedTuple):
    attributes: tuple[str, ...]
    used: Used


Names = tuple[tuple[str, str], ...]
"""ExpressionAttributeNames, as part of a cache key."""


@lru_cache(maxsize=1024)
def condition(text: str, names: Names) -> Condition:
    parser = _Parser(text, names)
    test = parser.condition()
    parser.end()
    return Condition(test, parser.used)


@lru_cache(maxsize=1024)
def key_condition(text: str, names: Names) -> KeyCondition:
    parser = _Parser(text, names)
    tests = parser.key_tests()
    parser.end()
    return KeyCondition(tests, parser.used)


@lru_cache(maxsize=1024)
def update(text: str, names: Names) -> Update:
    parser = _Parser(text, names)
    parsed = parser.update()
    parser.end()
    return parsed


@lru_cache(maxsize=1024)
def projection(text: str, names: Names) -> Projection:
    parser = _Parser(text, names)
    attributes = parser.listed(parser.path)
    parser.end()
    if len(set(attributes)) < len(attributes):
        raise Invalid("Invalid ProjectionExpression: Two document paths overlap with each other")
    return Projection(tuple(attributes), parser.used)


class _Parser:
    def __init__(self, text: str, names: Names) -> None:
        self.used = Used()
        self._text = text
        self._names = dict(names)
        self._tokens: list[str] = []
        for match in TOKEN.finditer(text.rstrip()):
            if match[3]:
                raise Invalid(f"not modelled or not valid: {match[3]!r} in {text!r}")
            self._tokens.append(match[1] or match[2])
        self._at = 0
        if not self._tokens:
            raise Invalid("The expression can not be empty")

    # Tokens

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise self._unexpected()

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _take(self, *words: str) -> str:
        """Consume the next token if it is one of these."""
        if self._peek().upper() in words:
            return self._next().upper()
        return ""

    def _need(self, word: str) -> None:
        if not self._take(word):
            raise self._unexpected()

    def _unexpected(self) -> Invalid:
        return Invalid(f"Syntax error or not modelled: {self._peek()!r} in {self._text!r}")

    def listed(self, parse: Callable[[], Any]) -> list[Any]:
        parsed = [parse()]
        while self._take(","):
            parsed.append(parse())
        return parsed

    # Operands

    def path(self) -> str:
        token = self._next()
        if token.startswith("#"):
            self.used.names.add(token)
            if token not in self._names:
                raise Invalid(f"An expression attribute name used is not defined: {token}")
            token = self._names[token]
        elif not token or not (token[0].isalpha() or token[0] == "_"):
            self._at -= 1
            raise self._unexpected()
        elif token.upper() in RESERVED:
            raise Invalid(f"Attribute name is a reserved keyword: {token}")
        self.used.attributes.add(token)
        return token

    def value(self) -> str:
        token = self._peek()
        if not token.startswith(":"):
            raise self._unexpected()
        self.used.values.add(token)
        return self._next()

    def _operand(self, kinds: frozenset[str] | None = None) -> Operand:
        """Parse an operand; `kinds` are the allowed types of values. Attributes are not checked."""
        if self._peek().startswith(":"):
            name = self.value()
            return _constant(name) if kinds is None else _constant_of(name, kinds)
        return _attribute(self.path())

    # Conditions

    def condition(self) -> Test:
        tests = [self._all_of()]
        while self._take("OR"):
            tests.append(self._all_of())
        return tests[0] if len(tests) == 1 else _any(tests)

    def _all_of(self) -> Test:
        tests = [self._one()]
        while self._take("AND"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else _all(tests)

    def _one(self) -> Test:
        if self._take("NOT"):
            return _not(self._one())
        if self._take("("):
            test = self.condition()
            self._need(")")
            return test
        if self._at + 1 < len(self._tokens) and self._tokens[self._at + 1] == "(":
            return self._function()
        return self._comparison()

    def _function(self) -> Test:
        # The names of functions are case-sensitive, unlike keywords.
        function = self._next()
        self._need("(")
        if function == "begins_with":
            left = self._operand(PREFIXED)
            self._need(",")
            test = _begins_with(left, self._operand(PREFIXED))
        elif function in ("attribute_exists", "attribute_not_exists"):
            test = _exists(self.path())
            if function == "attribute_not_exists":
                test = _not(test)
        elif function == "contains":
            name = self.path()
            self._need(",")
            test = _contains(_attribute(name), _constant(self.value()))
        else:
            raise Invalid(f"no such function, or not modelled: {function}")
        self._need(")")
        return test

    def _comparison(self) -> Test:
        left = self._operand()
        if self._take("BETWEEN"):
            low = self._operand(ORDERED)
            self._need("AND")
            return _between(left, low, self._operand(ORDERED))
        comparison = self._take("=", "<>", *COMPARISONS)
        if not comparison:
            raise self._unexpected()
        right = self._operand(ORDERED if comparison in COMPARISONS else None)
        if comparison == "=":
            return _equal(left, right)
        if comparison == "<>":
            return _not(_equal(left, right))
        return _ordered(left, right, COMPARISONS[comparison])

    # Key conditions

    def key_tests(self) -> tuple[KeyTest, ...]:
        tests = [self._key_test()]
        while self._take("AND"):
            tests.append(self._key_test())
        return tuple(tests)

    def _key_test(self) -> KeyTest:
        if self._take("("):
            test = self._key_test()
            self._need(")")
            return test
        if self._peek() == "begins_with":
            self._next()
            self._need("(")
            name = self.path()
            self._need(",")
            value = self.value()
            self._need(")")
            return KeyTest(name, "begins_with", (value,))
        name = self.path()
        if self._take("BETWEEN"):
            low = self.value()
            self._need("AND")
            return KeyTest(name, "BETWEEN", (low, self.value()))
        comparison = self._take("=", *COMPARISONS)
        if not comparison:
            raise self._unexpected()
        return KeyTest(name, comparison, (self.value(),))

    # Updates

    def update(self) -> Update:
        sets: list[tuple[str, Operand]] = []
        removes: list[str] = []
        adds: list[tuple[str, str]] = []
        seen: set[str] = set()
        while section := self._take(*SECTIONS):
            if section in seen:
                raise Invalid(f'The "{section}" section can only be used once')
            seen.add(section)
            if section == "SET":
                sets = self.listed(self._set)
            elif section == "REMOVE":
                removes = self.listed(self.path)
            else:
                adds = self.listed(lambda: (self.path(), self.value()))
        parsed = Update(tuple(sets), tuple(removes), tuple(adds), self.used)
        if len(parsed.targets) < len(sets) + len(removes) + len(adds):
            raise Invalid("Invalid UpdateExpression: Two document paths overlap with each other")
        return parsed

    def _set(self) -> tuple[str, Operand]:
        name = self.path()
        self._need("=")
        left = self._set_operand()
        sign = self._take("+", "-")
        if sign:
            left = _sum(left, self._set_operand(), 1 if sign == "+" else -1)
        return name, left

    def _set_operand(self) -> Operand:
        if self._peek() == "if_not_exists":
            self._next()
            self._need("(")
            name = self.path()
            self._need(",")
            otherwise = self._set_operand()
            self._need(")")
            return _either(_attribute(name), otherwise)
        return self._operand()


# The results of parsing: functions of an item and the values of a request.


def _constant(name: str) -> Operand:
    return lambda _, values: values[name]


def _constant_of(name: str, kinds: frozenset[str]) -> Operand:
    def constant(_: Item, values: Values) -> Value:
        value = values[name]
        if not value.keys() <= kinds:
            raise Invalid(f"Incorrect operand type for operator or function: {name}")
        return value

    return constant


def _attribute(name: str) -> Operand:
    return lambda item, _: item.get(name)


def _either(first: Operand, second: Operand) -> Operand:
    return lambda item, values: first(item, values) or second(item, values)


def _sum(left: Operand, right: Operand, sign: int) -> Operand:
    def total(item: Item, values: Values) -> Value | None:
        a, b = left(item, values), right(item, values)
        return None if a is None or b is None else added(a, b, sign)

    return total


def _any(tests: Sequence[Test]) -> Test:
    return lambda item, values: any(test(item, values) for test in tests)


def _all(tests: Sequence[Test]) -> Test:
    return lambda item, values: all(test(item, values) for test in tests)


def _not(test: Test) -> Test:
    return lambda item, values: not test(item, values)


def _exists(name: str) -> Test:
    return lambda item, _: name in item


def _equal(left: Operand, right: Operand) -> Test:
    def test(item: Item, values: Values) -> bool:
        a, b = left(item, values), right(item, values)
        return a is not None and b is not None and same(a, b)

    return test


def _ordered(left: Operand, right: Operand, compare: Callable[[Any, Any], bool]) -> Test:
    def test(item: Item, values: Values) -> bool:
        a, b = left(item, values), right(item, values)
        return a is not None and b is not None and _compared(a, b, compare)

    return test


def _between(left: Operand, low: Operand, high: Operand) -> Test:
    def test(item: Item, values: Values) -> bool:
        a, b, c = left(item, values), low(item, values), high(item, values)
        if b is not None and c is not None and _compared(b, c, operator.gt):
            raise Invalid(
                "The BETWEEN operator requires upper bound to be greater than or equal to lower"
                " bound"
            )
        if a is None or b is None or c is None:
            return False
        return _compared(b, a, operator.le) and _compared(a, c, operator.le)

    return test


def _contains(left: Operand, right: Operand) -> Test:
    def test(item: Item, values: Values) -> bool:
        a, b = left(item, values), right(item, values)
        if a is None or b is None:
            return False
        ((kind, content),) = a.items()
        ((other, wanted),) = b.items()
        return kind in (other, f"{other}S") and wanted in content

    return test


def _begins_with(left: Operand, right: Operand) -> Test:
    def test(item: Item, values: Values) -> bool:
        a, b = left(item, values), right(item, values)
        if a is None or b is None:
            return False
        (kind, content), (other, prefix) = comparable(a), comparable(b)
        return kind == other and kind in PREFIXED and bool(content.startswith(prefix))

    return test


def _compared(left: Value, right: Value, compare: Callable[[Any, Any], bool]) -> bool:
    (kind, a), (other, b) = comparable(left), comparable(right)
    return kind == other and kind in ORDERED and compare(a, b)
