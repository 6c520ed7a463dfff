"""Words and sentences: no retired word of the glossary, and no docstring that is a riddle."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from devtools.processes import ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
TEXTS = {".py", ".md", ".js", ".mjs", ".json", ".toml", ".yml", ".yaml", ".mk", ".html", ".vcl"}
EXEMPT = {"docs/glossary.md", "package-lock.json", "CHANGELOG.md"}

RIDDLE = re.compile(r'"""(?:Who|What|Whoever|Whatever) ')
RIDDLE_NAME = re.compile(r"def (test_(?:who|what|whoever|whatever)_\w+)")


def retired() -> tuple[list[str], list[str]]:
    """Words that are in no text any more, and names that are in no code."""
    table = GLOSSARY.read_text().partition("## Retired")[2]
    cells = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", table, re.MULTILINE)[1:]
    each = [word.strip() for cell in cells for word in cell.split(",")]
    names = [word.strip("`") for word in each if word.startswith("`")]
    return [word for word in each if not word.startswith("`")], names


def files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    return [
        ROOT / name
        for name in listed
        if Path(name).suffix in TEXTS and name not in EXEMPT and (ROOT / name).is_file()
    ]


TRACKED = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository of git")


def places(pattern: re.Pattern[str], suffixes: set[str]) -> list[str]:
    found = []
    for file in files():
        if file.suffix not in suffixes or file == Path(__file__):
            continue
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            found += [f"{file.relative_to(ROOT)}:{number}: {m[0]}" for m in pattern.finditer(line)]
    return found


@TRACKED
def test_retired_words_stay_retired() -> None:
    words, _ = retired()
    assert {"door", "pulse", "knob"} <= set(words)
    # Parts of names count, too: `door_key` and `FrontDoor`.
    parts = "|".join(rf"{word}|{word.capitalize()}|{word.upper()}" for word in words)
    assert places(re.compile(rf"(?<![A-Za-z])(?:{parts})s?(?![a-z])"), TEXTS) == []


@TRACKED
def test_retired_names_are_in_no_code() -> None:
    _, names = retired()
    assert {"Room", "Look"} <= set(names)
    pattern = re.compile(
        rf"(?:class |def |import |: |-> |\[|, )(?:{'|'.join(names)})(?=[(,\]\s:]|$)"
    )
    assert places(pattern, {".py"}) == []


@TRACKED
def test_docstrings_and_tests_have_a_subject() -> None:
    assert places(RIDDLE, {".py"}) + places(RIDDLE_NAME, {".py"}) == []


SAME: set[str] = {"Chain", "Removed"}
"""Names that both stores have, for the same thing."""

PUBLIC: set[str] = {"Client", "Producer", "Stream", "Subscription"}
"""Names that users of the Python client import, and that parts of the server have as well."""


@TRACKED
def test_public_classes_have_names_of_their_own() -> None:
    package = ROOT / "layers" / "core" / "python" / "tailrace"
    names = Counter(
        name
        for file in package.rglob("*.py")
        for name in re.findall(r"^class ([A-Z]\w*)", file.read_text(), re.MULTILINE)
    )
    assert {name for name, count in names.items() if count > 1} == SAME | PUBLIC
