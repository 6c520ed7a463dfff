"""`python -m devtools.chaos.jumping_clock FILE serve …`: Tailrace with a clock that jumps.

FILE holds the milliseconds by which the clock is ahead, as eight bytes, and may be changed while
the server runs.
"""

from __future__ import annotations

import mmap
import struct
import sys
from pathlib import Path
from typing import Final

from tailrace import clock

AHEAD: Final = struct.Struct("<q")


def set_clock(file: Path, seconds: int) -> None:
    """Let the clock of a server be ahead, or with a negative number behind."""
    data = AHEAD.pack(seconds * 1000)
    # In one write and in place: the server has the file in its memory.
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(data)


def main() -> None:
    file, *arguments = sys.argv[1:]
    with Path(file).open("rb") as opened:
        ahead = mmap.mmap(opened.fileno(), AHEAD.size, access=mmap.ACCESS_READ)
    right_clock = clock.system_clock
    clock.system_clock = lambda: right_clock() + AHEAD.unpack_from(ahead)[0]
    # Imported by now, its modules would have taken the right clock.
    from tailrace.cli import main as run

    run(arguments, prog_name="tailrace")


if __name__ == "__main__":
    main()
