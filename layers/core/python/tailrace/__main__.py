"""`python -m tailrace` runs the command `tailrace`."""

from __future__ import annotations

from tailrace.cli import main

if __name__ == "__main__":
    main(prog_name="tailrace")
