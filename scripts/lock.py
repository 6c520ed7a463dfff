"""Compile `requirements/*.in` into `.txt` files: every package pinned, with its hashes.

`make lock` keeps the pins that still fit; `make lock ARGS="--upgrade"` takes the newest versions.
All files agree on versions, except those of engines with environments of their own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"

PYTHON_VERSION = "3.11"
"""The oldest that the project runs on."""

ENGINES = ("glue6", "java", "lambda", "ministack", "node", "sam", "seaweedfs", "uv")
"""Each has its own environment, so its pins need not agree with others."""

ALONE = ("seaweedfs",)
"""Only one binary of the package is used: its dependencies are not installed."""

LAYERS = ("layer-web", "layer-tokens", "layer-signing", "layer-aviso")
"""They are combined with `layer-shared`: each package is in one layer only."""


def names(file: str) -> list[str]:
    """Names of the packages that a compiled file pins."""
    lines = (FOLDER / f"{file}.txt").read_text().splitlines()
    return [line.split("==")[0].split("[")[0] for line in lines if line[:1].isalnum()]


def compile_file(file: str, *options: str) -> None:
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", "compile", f"requirements/{file}.in"]
    command += ["--output-file", f"requirements/{file}.txt", "--quiet", "--universal"]
    command += ["--python-version", PYTHON_VERSION, "--fork-strategy", "fewest"]
    command += ["--generate-hashes", "--no-emit-index-url", "--no-emit-find-links"]
    command += ["--custom-compile-command", "make lock"]
    print(f"Locking requirements/{file}.txt …", flush=True)
    if subprocess.run([*command, *options], cwd=ROOT).returncode:
        raise SystemExit(f"uv could not lock requirements/{file}.in; its message is above.")


def main() -> None:
    options = sys.argv[1:]
    agreeing = ("--constraint", "requirements/dev.txt")
    compile_file("dev", *options)
    for file in ("serve", "layer-shared", "glue-modules"):
        compile_file(file, *agreeing, *options)
    elsewhere = [option for name in names("layer-shared") for option in ("--no-emit-package", name)]
    for file in LAYERS:
        compile_file(file, *agreeing, *elsewhere, *options)
    for file in ENGINES:
        compile_file(file, *(["--no-deps"] if file in ALONE else []), *options)


if __name__ == "__main__":
    main()
