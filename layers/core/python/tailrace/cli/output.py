"""What a command prints: sentences for people, or one JSON object per line for machines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True)
class Output:
    as_json: bool

    def result(self, sentence: str, **fields: object) -> None:
        """The outcome of a command, in the form that was asked for."""
        self.line(as_line(fields) if self.as_json else sentence)

    def line(self, text: str) -> None:
        # A name from the command line may hold bytes that are no UTF-8.
        self.write(text.encode(errors="backslashreplace") + b"\n")

    def write(self, data: bytes) -> None:
        # Flushed at once so that a full disk or a closed pipe shows here, not at interpreter exit.
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def note(self, sentence: str) -> None:
        """Something on the side that is for people only."""
        if not self.as_json:
            click.echo(sentence, err=True)


def as_line(fields: object) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows with aligned columns; what would move the cursor of a terminal is shown as `?`."""
    clean = [["".join(c if c.isprintable() else "?" for c in cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in clean
    )


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def release_stdout() -> None:
    """Let the interpreter's last flush of a broken stdout go nowhere instead of complaining."""
    try:
        target = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, target)
    os.close(nowhere)
