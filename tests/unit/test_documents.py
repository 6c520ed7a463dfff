"""The documents name only files, modules, headings and make targets that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devtools.processes import ROOT

GENERATED = {"build", "cdk.out", "data", "dist", "node_modules"}
FOLDERS = sorted(
    path.name
    for path in ROOT.iterdir()
    if path.is_dir() and not path.name.startswith(".") and path.name not in GENERATED
)
DOCUMENTS = sorted(
    {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")}
    | {file for folder in FOLDERS for file in (ROOT / folder).rglob("README.md")}
)
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

CODE = re.compile(r"(?s:```.*?```)|`[^`\n]+`")
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)#?([^)\s]*)\)")
TARGET = re.compile(r"\bmake ([a-z][a-z0-9-]*)")
PATH = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./*<>-]*")
MODULE = re.compile(rf"-m ((?:{'|'.join(FOLDERS)})(?:\.\w+)*)")

each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda file: file.relative_to(ROOT).as_posix()
)


def code(document: Path) -> str:
    """The code blocks and inline code of a document."""
    return "\n".join(CODE.findall(document.read_text()))


def anchors(document: Path) -> set[str]:
    """The fragments by which links refer to the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def exists(path: str) -> bool:
    """Whether a path of the repository exists; `*` and `<name>` stand for any name."""
    return any(ROOT.glob(re.sub(r"<[^>]*>", "*", path.rstrip("./"))))


@each_document
def test_links_lead_somewhere(document: Path) -> None:
    for path, anchor in LINK.findall(document.read_text()):
        target = document.parent / path if path else document
        assert target.exists(), f"there is no {path}"
        assert not anchor or anchor in anchors(target), f"{path} has no heading #{anchor}"


@each_document
def test_named_paths_exist(document: Path) -> None:
    modules = (name.replace(".", "/") for name in MODULE.findall(code(document)))
    missing = [name for name in modules if not (exists(name) or exists(f"{name}.py"))]
    missing += [path for path in PATH.findall(code(document)) if not exists(path)]
    assert missing == []


@each_document
def test_named_targets_are_in_the_makefile(document: Path) -> None:
    assert set(TARGET.findall(code(document))) - TARGETS == set()


def test_the_main_documents_are_checked() -> None:
    checked = {file.relative_to(ROOT).as_posix() for file in DOCUMENTS}
    assert {"README.md", "CONTRIBUTING.md", "docs/design.md", "devtools/README.md"} <= checked
    assert {"unit", "test", "test-slow", "lock"} <= TARGETS
