from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import InvalidJson
from tailrace.limits import JSON_DEPTH
from tailrace.log import json_mode
from tailrace.log.json_mode import count, flatten, split, take

bounded = settings(max_examples=40, deadline=None, derandomize=True)

BOM = b"\xef\xbb\xbf"

# What arrives, and the messages it consists of: their own bytes, nothing re-serialised.
BODIES: list[tuple[bytes, list[bytes]]] = [
    # A value that is no array is one message.
    (b"null", [b"null"]),
    (b"0", [b"0"]),
    (b"true", [b"true"]),
    (b"false", [b"false"]),
    (b'""', [b'""']),
    (b'"text"', [b'"text"']),
    (b"{}", [b"{}"]),
    (b'{"a":[1,2]}', [b'{"a":[1,2]}']),
    # An array is flattened once, and only once.
    (b"[]", []),
    (b"[ \r\n\t ]", []),
    (b"[1]", [b"1"]),
    (b"[1,2]", [b"1", b"2"]),
    (b"[null]", [b"null"]),
    (b"[[]]", [b"[]"]),
    (b"[[],[]]", [b"[]", b"[]"]),
    (b"[[1,2],[3,4]]", [b"[1,2]", b"[3,4]"]),
    (b"[[[1,2,3]]]", [b"[[1,2,3]]"]),
    (b'[{"a":1},{"b":[2,{"c":3}]}]', [b'{"a":1}', b'{"b":[2,{"c":3}]}']),
    # Space around the text and its elements goes, space inside of an element stays.
    (b" \t\r\n 1 \t\r\n", [b"1"]),
    (b" [ 1 ,\t2\r\n,3 ] ", [b"1", b"2", b"3"]),
    (b'[ { "a" : [ 1 , 2 ] } , "b" ]', [b'{ "a" : [ 1 , 2 ] }', b'"b"']),
    (b'[" a "," b "]', [b'" a "', b'" b "']),
    # Numbers keep every digit.
    (b"12345678901234567890", [b"12345678901234567890"]),
    (b"[1e400,-1e400]", [b"1e400", b"-1e400"]),
    (b"[1.0,1.00,1e2,1E+2,-0,-0.0]", [b"1.0", b"1.00", b"1e2", b"1E+2", b"-0", b"-0.0"]),
    (b"[0.1234567890123456789012345]", [b"0.1234567890123456789012345"]),
    (b"[" + b"9" * 5000 + b"]", [b"9" * 5000]),
    # Duplicate keys and the order of keys stay.
    (b'{"a":1,"a":2}', [b'{"a":1,"a":2}']),
    (b'[{"b":1,"a":2,"b":3}]', [b'{"b":1,"a":2,"b":3}']),
    # Escapes stay as they were written, pairs of surrogates or not.
    (rb'["\u0041\/\n"]', [rb'"\u0041\/\n"']),
    (rb'["\ud83d\ude00"]', [rb'"\ud83d\ude00"']),
    (rb'["\ud800","\udc00","\ude00\ud83d"]', [rb'"\ud800"', rb'"\udc00"', rb'"\ude00\ud83d"']),
    ('["ä","😀"]'.encode(), ['"ä"'.encode(), '"😀"'.encode()]),
    (b'["\xe2\x80\xa8\x7f"]', [b'"\xe2\x80\xa8\x7f"']),
    # Marks inside of strings are no structure.
    (b'["a,b","[","]","{","}"]', [b'"a,b"', b'"["', b'"]"', b'"{"', b'"}"']),
    (rb'["\"","\",\"","a\\"]', [rb'"\""', rb'"\",\""', rb'"a\\"']),
    (rb'["\\\\",",\\\","]', [rb'"\\\\"', rb'",\\\","']),
    (rb'[{"],[":"}"},{"\"":1}]', [rb'{"],[":"}"}', rb'{"\"":1}']),
    # A byte order mark at the front is no part of the text.
    (BOM + b"[1,2]", [b"1", b"2"]),
    (BOM + b' "x" ', [b'"x"']),
]


@pytest.mark.parametrize(("body", "messages"), BODIES, ids=[repr(body)[:60] for body, _ in BODIES])
def test_a_body_is_its_messages_byte_for_byte(body: bytes, messages: list[bytes]) -> None:
    text, count = flatten(body)
    assert count == len(messages)
    assert split(text) == messages
    # What is stored reads back as the same array.
    assert text == text.strip()
    served = b"[%b]" % text
    assert split(flatten(served)[0]) == messages


INVALID = {
    "nothing": b"",
    "space only": b" \n",
    "byte order mark only": BOM,
    "two byte order marks": BOM + BOM + b"1",
    "byte order mark inside": b"[" + BOM + b"1]",
    "word": b"hello",
    "None": b"None",
    "True": b"True",
    "single quotes": b"'a'",
    "NaN": b"NaN",
    "Infinity": b"Infinity",
    "negative Infinity": b"-Infinity",
    "NaN inside": b"[1,NaN]",
    "Infinity inside": b'{"a":[Infinity]}',
    "negative Infinity beside a large number": b"[1e400,-Infinity]",
    "two values": b"1 2",
    "two arrays": b"[1][2]",
    "lines": b"1\n2\n",
    "messages without brackets": b"1,2",
    "open array": b"[1,2",
    "open object": b'{"a":1',
    "closed array only": b"]",
    "crossed": b"[{]}",
    "trailing comma": b"[1,]",
    "leading comma": b"[,1]",
    "two commas": b"[1,,2]",
    "comma only": b"[,]",
    "trailing comma in object": b'{"a":1,}',
    "unquoted key": b"{a:1}",
    "number as key": b"{1:1}",
    "key without value": b'{"a"}',
    "leading zero": b"[01]",
    "plus": b"[+1]",
    "no digit before point": b"[.5]",
    "no digit after point": b"[1.]",
    "no digit in exponent": b"[1e]",
    "minus only": b"-",
    "hexadecimal": b"0x10",
    "arabic digit": "[١]".encode(),
    "digit separator": b"1_000",
    "comment": b"[1/*x*/]",
    "raw newline in string": b'["a\nb"]',
    "raw tab in string": b'["a\tb"]',
    "raw NUL in string": b'["\0"]',
    "raw NUL beside a large number": b'[1e400,"\0"]',
    "NUL after": b"1\0",
    "vertical tab around": b"\x0b1",
    "form feed around": b"[1]\x0c",
    "no-break space around": "\u00a01".encode(),
    "unknown escape": rb'"\x41"',
    "short unicode escape": rb'"\u12"',
    "no string end": b'"abc',
    "escaped string end": rb'"abc\"',
    "invalid UTF-8": b'["\xff"]',
    "invalid UTF-8 beside a large number": b'[1e400,"\xff"]',
    "cut UTF-8": b'["\xc3"]',
    "overlong UTF-8": b'["\xc0\xaf"]',
    "surrogate as UTF-8": b'["\xed\xa0\x80"]',
    "beyond unicode": b'["\xf5\x80\x80\x80"]',
    "UTF-16": "[1]".encode("utf-16"),
    "UTF-16 without mark": "[1]".encode("utf-16-le"),
    "latin-1": '["ä"]'.encode("latin-1"),
}


@pytest.mark.parametrize("body", INVALID.values(), ids=INVALID.keys())
def test_invalid_json_is_rejected(body: bytes) -> None:
    with pytest.raises(InvalidJson):
        flatten(body)


NESTINGS: dict[str, Callable[[int], bytes]] = {
    "arrays": lambda depth: b"[" * depth + b"]" * depth,
    "objects": lambda depth: b'{"a":' * depth + b"1" + b"}" * depth,
    "both": lambda depth: (
        b'[{"a":' * (depth // 2) + (b"[]" if depth % 2 else b"1") + b"}]" * (depth // 2)
    ),
    "with a number beyond a double": lambda depth: b"[" * depth + b"1e400" + b"]" * depth,
}


@pytest.mark.parametrize("nested", NESTINGS.values(), ids=NESTINGS.keys())
def test_nesting_up_to_the_limit_is_fine(nested: Any) -> None:
    assert flatten(nested(JSON_DEPTH))[1] == 1


@pytest.mark.parametrize("depth", [JSON_DEPTH + 1, 1024, 1025, 5_000, 100_000])
@pytest.mark.parametrize("nested", NESTINGS.values(), ids=NESTINGS.keys())
def test_nesting_beyond_the_limit_is_refused(nested: Any, depth: int) -> None:
    with pytest.raises(InvalidJson, match="nested deeper"):
        flatten(nested(depth))


def test_the_limit_counts_depth_not_brackets() -> None:
    assert flatten(b"[" + b"[]," * 1000 + b"[]]")[1] == 1001
    assert flatten(b'["' + b"[{" * 1000 + b'"]')[1] == 1
    assert flatten(rb'["\"' + b"[" * 1000 + b'"]')[1] == 1


@pytest.fixture(params=[1, 2, 3, 5, 8, 13, 64])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every body is checked, and every text taken apart, in pieces of some bytes."""
    monkeypatch.setattr(json_mode, "JSON_EVENT_LOOP_BYTES", 0)
    monkeypatch.setattr(json_mode, "JSON_CHECK_STEP_BYTES", request.param)
    monkeypatch.setattr(json_mode, "JSON_SPLIT_BYTES", request.param + 1)


@pytest.mark.usefixtures("pieces")
def test_pieces_give_the_same_messages() -> None:
    for body, messages in BODIES:
        text, number = flatten(body)
        assert number == len(messages), body
        assert split(text) == messages
        assert count(text) == number
        assert [take(text, most)[1] for most in range(1, number + 2)] == [
            *range(1, number + 1),
            number,
        ]
        assert [split(take(text, most)[0]) for most in range(1, number + 1)] == [
            messages[:most] for most in range(1, number + 1)
        ]


@pytest.mark.usefixtures("pieces")
def test_pieces_refuse_the_same_bodies() -> None:
    for name, body in INVALID.items():
        with pytest.raises(InvalidJson):
            flatten(body)
        if name == "messages without brackets":
            continue
        # The same in the middle of what is fine.
        with pytest.raises(InvalidJson):
            flatten(b'[{"a":["b,",1]},' + body + b',{"c":"d"},[]]')


@pytest.mark.usefixtures("pieces")
def test_pieces_have_the_same_limit_of_nesting() -> None:
    for nested in NESTINGS.values():
        inside = b'[1,{"a":' + nested(JSON_DEPTH - 2) + b"},2]"
        assert flatten(inside)[1] == 3
        with pytest.raises(InvalidJson, match="nested deeper"):
            flatten(b"[%b]" % inside)


def test_nothing_flattens_to_no_message() -> None:
    assert split(b"") == []


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),  # surrogates included
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
styles = st.sampled_from(
    [
        {"ensure_ascii": True},
        {"ensure_ascii": True, "separators": (",", ":")},
        {"ensure_ascii": True, "indent": 2},
        {"ensure_ascii": True, "separators": (" \t,\r\n ", "\n:\t")},
    ]
)


@bounded
@given(st.lists(json_values, max_size=6), styles)
def test_a_list_is_the_texts_of_its_elements(values: list[Any], style: dict[str, Any]) -> None:
    text, count = flatten(json.dumps(values, **style).encode())
    assert count == len(values)
    if "indent" in style:  # indented elements sit deeper than they would alone
        assert [json.loads(message) for message in split(text)] == values
    else:
        assert split(text) == [json.dumps(value, **style).encode() for value in values]


@bounded
@given(json_values.filter(lambda value: not isinstance(value, list)), styles)
def test_any_other_value_is_its_own_text(value: Any, style: dict[str, Any]) -> None:
    text = json.dumps(value, **style).encode()
    assert flatten(text) == (text, 1)
    assert split(text) == [text]


@bounded
@given(st.lists(st.lists(json_values, min_size=1, max_size=3), min_size=1, max_size=4))
def test_batches_joined_are_one_array_of_all_their_messages(batches: list[list[Any]]) -> None:
    stored = [flatten(json.dumps(batch).encode())[0] for batch in batches]
    served = b"[%b]" % b",".join(stored)
    assert json.loads(served) == [value for batch in batches for value in batch]
    assert flatten(served)[1] == sum(map(len, batches))


@bounded
@given(
    st.binary(max_size=60) | st.text('[]{}",:\\ 0123eE+-.truefalsn\n', max_size=60).map(str.encode)
)
def test_the_same_bodies_are_accepted_as_by_a_strict_parser(body: bytes) -> None:
    try:
        text, count = flatten(body)
    except InvalidJson:
        assert strict(body.removeprefix(BOM)) is None
        return
    parsed = strict(body.removeprefix(BOM))
    assert parsed is not None
    (value,) = parsed
    assert count == (len(value) if isinstance(value, list) else 1)
    assert len(split(text)) == count


def verdict(body: bytes) -> tuple[bytes, int] | None:
    try:
        return flatten(body)
    except InvalidJson:
        return None


@bounded
@given(
    st.text('[]{}",:\\ 01eE-.u', max_size=40).map(str.encode)
    | st.builds(
        lambda values, style, cut, put: (
            (text := json.dumps(values, **style).encode())[:cut] + put + text[cut:]
        ),
        st.lists(json_values, max_size=6),
        styles,
        st.integers(0, 60),
        st.sampled_from([b"", b"", b",", b"[", b"]", b'"', b"}", b":", b"\\", b" ", b"1", b"\xff"]),
    ),
    st.integers(1, 20),
)
def test_pieces_and_the_whole_have_the_same_verdict(body: bytes, size: int) -> None:
    whole = verdict(body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_mode, "JSON_EVENT_LOOP_BYTES", 0)
        patch.setattr(json_mode, "JSON_CHECK_STEP_BYTES", size)
        # A block holds an escape, which has two bytes: it would never get past one.
        patch.setattr(json_mode, "JSON_SPLIT_BYTES", max(size, 2))
        assert verdict(body) == whole
        if whole is not None:
            assert len(split(whole[0])) == count(whole[0]) == whole[1]


def strict(body: bytes) -> tuple[Any] | None:
    """The verdict of Python's own parser, restricted to JSON."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        return (json.loads(body.decode("utf-8"), parse_constant=refuse),)
    except ValueError:
        return None


def test_the_deepest_body_may_have_more_brackets_than_levels() -> None:
    around = JSON_DEPTH - 1
    body = b"[" * around + b"[],{}" + b"]" * around
    assert flatten(body) == (body[1:-1], 1)
    with pytest.raises(InvalidJson, match="deeper"):
        flatten(b"[" * around + b"[],[{}]" + b"]" * around)
