from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.protocols.aviso import topics


@pytest.mark.parametrize(
    ("value", "token"),
    [("a", "a"), ("1.5", "1%2E5"), ("*", "%2A"), (">", "%3E"), ("%", "%25"), ("%2E", "%252E"),
     ("a/b c", "a/b c"), ("é", "é"), (".*>%", "%2E%2A%3E%25")],
)  # fmt: skip
def test_special_characters_are_percent_encoded(value: str, token: str) -> None:
    assert topics.encode(value) == token
    assert topics.decode(token) == value


@pytest.mark.parametrize(("token", "value"), [("%2e", "."), ("%c3%a9", "é"), ("%41", "A")])
def test_other_escapes_are_decoded(token: str, value: str) -> None:
    assert topics.decode(token) == value


@pytest.mark.parametrize("token", ["%", "%2", "%zz", "a%", "%%41", "%ff", "%2E%"])
def test_malformed_escapes_are_refused(token: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        topics.decode(token)


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1))
def test_splitting_reverses_joining(values: list[str]) -> None:
    assert topics.split(topics.join("base", values)) == ("base", values)


def test_a_pattern_has_stars_for_missing_values() -> None:
    assert topics.format_pattern("polygon", [None, "1200"]) == "polygon.*.1200"
