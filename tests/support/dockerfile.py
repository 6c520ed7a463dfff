"""The instructions of the Dockerfile."""

from __future__ import annotations

import json
import re
import shlex
from typing import NamedTuple

from devtools.processes import ROOT


class Instruction(NamedTuple):
    name: str
    text: str

    @property
    def command(self) -> list[str]:
        """The command of an instruction that has one as a list."""
        command: list[str] = json.loads(self.text)
        return command


class Stage(NamedTuple):
    base: str
    instructions: list[Instruction]

    def all(self, name: str) -> list[str]:
        return [each.text for each in self.instructions if each.name == name]

    def one(self, name: str) -> Instruction:
        (found,) = (each for each in self.instructions if each.name == name)
        return found

    @property
    def environment(self) -> dict[str, str]:
        pairs = [pair for text in self.all("ENV") for pair in shlex.split(text)]
        return dict(pair.split("=", 1) for pair in pairs)


def stages() -> list[Stage]:
    text = (ROOT / "Dockerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    found: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append(Stage(rest, []))
        elif name and found:
            found[-1].instructions.append(Instruction(name, rest))
    return found
