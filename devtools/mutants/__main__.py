"""Applies one mutant at a time to a copy of the tree, and checks that the tests detect it.

    python -m devtools.mutants [--root DIR] [--only ID ...] [--jobs N] [--report FILE]

The mutants are in `mutants.toml`. README.md describes how to add one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
REPOSITORY: Final = HERE.parent.parent
TABLE: Final = HERE / "mutants.toml"
PACKAGES: Final = Path("layers/core/python")
LINKED: Final = (".engines", "node_modules")
"""Installed by `make setup` and not tracked by git: shared with the original tree."""

TIMED_OUT: Final = "timed out"
PYTEST_SECONDS: Final = 600
PYTEST: Final = (
    "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-n0",
    "-m", "not slow",
)  # fmt: skip
"""Without a plug-in that takes two seconds to load, and that only the fuzz tests use."""
PASSED: Final = (0, 5)
"""Exit codes of pytest: all passed, and nothing was left to run."""
FAILED: Final = (1, 2)
"""Exit codes of pytest: a test failed, and a test file could not be collected."""

_FAILURE: Final = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)

_HTTP: Final = ("tests/unit/web", "tests/integration/durable_streams")
_STREAMS: Final = ("tests/unit/streams", "tests/unit/store/test_*.py", *_HTTP)
_DYNAMO: Final = (
    "tests/unit/store/dynamodb",
    "tests/integration/store/dynamodb/test_s*.py",
    "tests/integration/store/dynamodb/test_[!s]*.py",
    "tests/integration/simulation",
    "tests/integration/faults/test_dynamodb.py",
)

TESTS: Final[Mapping[str, Sequence[str]]] = {
    "log": ("tests/unit/log", *_STREAMS),
    "streams.py": _STREAMS,
    "store": ("tests/unit/store/test_*.py", "tests/unit/streams", *_HTTP),
    "store/dynamodb": _DYNAMO,
    "aws/client/json_client.py": ("tests/unit/aws/client/test_json_client.py", *_DYNAMO),
    "store/dynamodb/retention.py": ("tests/integration/store/dynamodb/test_retention.py", *_DYNAMO),
    "store/dynamodb/trimming.py": ("tests/integration/store/dynamodb/test_trimming.py", *_DYNAMO),
    "web": ("tests/unit/web", "tests/unit/test_live.py", "tests/integration/durable_streams"),
    "live": (
        "tests/unit/live",
        "tests/unit/durable_streams",
        "tests/unit/action_cable/test_stream_follower.py",
        "tests/unit/test_live.py",
    ),
    "protocols/durable_streams": (
        "tests/unit/durable_streams",
        "tests/unit/web",
        "tests/unit/test_live.py",
        "tests/integration/durable_streams",
    ),
    "auth": (
        "tests/unit/auth",
        "tests/unit/web",
        "tests/integration/durable_streams/test_[cd]*.py",
    ),
    "protocols/action_cable": (
        "tests/unit/action_cable",
        "tests/integration/action_cable/test_[!j]*.py",
    ),
    "protocols/action_cable/api_gateway": ("tests/integration/action_cable/api_gateway",),
    "protocols/subscriptions": (
        "tests/unit/subscriptions",
        "tests/integration/simulation/test_subscriptions.py",
    ),
    "cli/commands/work.py": ("tests/integration/cli/test_work.py",),
    "protocols/aviso": ("tests/unit/aviso", "tests/integration/aviso"),
}
"""Which tests concern a part of the package, the cheapest first: globs from the root, for the
longest path that a mutated file begins with. A glob that matches nothing is left out."""


class Mutant(NamedTuple):
    """A bug: a text of one file, and what stands there instead."""

    id: str
    file: str
    """Below the package."""
    old: str
    new: str

    @property
    def tests(self) -> Sequence[str]:
        areas = [area for area in TESTS if Path(self.file).is_relative_to(area)]
        return TESTS[max(areas, key=len)] if areas else ()


class Outcome(NamedTuple):
    """The verdict of the tests on a mutant."""

    mutant: Mutant
    caught: str | None
    """The first test that failed; None: the mutant survived."""
    seconds: float


class Unusable(Exception):
    """The table, the tree or pytest cannot be used, so nothing is known about the tests."""


class Copy:
    """A scratch copy of the tree, in which one mutant at a time is tested."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self._tree = scratch / "tree"
        self._temporary = scratch / "tmp"
        self._output = scratch / "output"
        self._sound: set[str] = set()
        """Tests that were seen to pass without a mutant."""
        self._unsound: list[str] = []
        """Tests that fail without one: they prove nothing."""
        for name in _tracked(root):
            target = self._tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target, follow_symlinks=False)
        for name in LINKED:
            if (root / name).exists():
                (self._tree / name).symlink_to((root / name).resolve())
        paths = (self._tree / PACKAGES, self._tree)
        self._env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        self._require_own_package()

    def test(self, mutant: Mutant) -> Outcome:
        """Run the tests of a mutant until one fails that does not fail without it."""
        begun = time.monotonic()
        caught = None
        for pattern in mutant.tests:
            caught = self._catch(mutant, pattern)
            if caught is not None:
                break
        return Outcome(mutant, caught, time.monotonic() - begun)

    def _catch(self, mutant: Mutant, pattern: str) -> str | None:
        tests = sorted(str(each.relative_to(self._tree)) for each in self._tree.glob(pattern))
        while tests:
            failed = self._with(mutant, tests)
            if failed is None or failed == TIMED_OUT or self._is_sound(failed):
                return failed
            if failed in self._unsound:
                raise Unusable(f"{failed} fails without a mutant, and cannot be left out")
            self._unsound.append(failed)
        return None

    def _with(self, mutant: Mutant, tests: Sequence[str]) -> str | None:
        """The first test that fails while a mutant is planted, if one does."""
        file = self._tree / PACKAGES / "tailrace" / mutant.file
        original = file.read_text()
        _write(file, original.replace(mutant.old, mutant.new))
        try:
            return self._pytest(tests)
        finally:
            _write(file, original)

    def _is_sound(self, test: str) -> bool:
        """Whether a test passes while no mutant is planted."""
        if test not in self._sound and self._pytest([test]) is None:
            self._sound.add(test)
        return test in self._sound

    def _pytest(self, tests: Sequence[str]) -> str | None:
        """The first test that fails, if one does."""
        left_out = [f"--deselect={each}" for each in self._unsound]
        # Examples that failed for another mutant are not to be tried first.
        shutil.rmtree(self._tree / ".hypothesis", ignore_errors=True)
        with self._output.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *PYTEST, f"--basetemp={self._temporary}", *left_out, *tests],
                cwd=self._tree,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            process.wait(PYTEST_SECONDS)
        except subprocess.TimeoutExpired:
            return TIMED_OUT
        finally:
            _end(process)
        if process.returncode in PASSED:
            return None
        said = self._output.read_text(errors="replace")
        failure = _FAILURE.search(said)
        if process.returncode not in FAILED or failure is None:
            shown = "\n".join(said.splitlines()[-40:])
            raise Unusable(f"pytest ended with {process.returncode} in {tests}:\n{shown}")
        return failure[1]

    def _require_own_package(self) -> None:
        """The editable install must not hide the copy: then no mutant would be tested at all."""
        found = subprocess.run(
            [sys.executable, "-c", "import tailrace; print(tailrace.__file__)"],
            cwd=self._tree,
            env=self._env,
            capture_output=True,
            text=True,
        )
        used, own = found.stdout.strip(), self._tree / PACKAGES / "tailrace" / "__init__.py"
        if found.returncode != 0 or Path(used).resolve() != own.resolve():
            raise Unusable(f"tests would use '{used}', not '{own}'\n{found.stderr}")


def read(table: Path) -> list[Mutant]:
    """The mutants of a table; their ids differ, and they have the four fields and no others."""
    with table.open("rb") as file:
        given = tomllib.load(file)["mutant"]
    for each in given:
        if set(each) != set(Mutant._fields):
            raise Unusable(f"a mutant has id, file, old and new, not {', '.join(each)}")
    mutants = [Mutant(**each) for each in given]
    ids = [mutant.id for mutant in mutants]
    twice = {name for name in ids if ids.count(name) > 1}
    if twice:
        raise Unusable(f"more than one mutant is called {', '.join(sorted(twice))}")
    return mutants


def chosen(mutants: Sequence[Mutant], only: Sequence[str]) -> list[Mutant]:
    """Those that are asked for, or all."""
    unknown = set(only) - {mutant.id for mutant in mutants}
    if unknown:
        raise Unusable(f"there is no mutant {', '.join(sorted(unknown))}")
    return [mutant for mutant in mutants if not only or mutant.id in only]


def check(mutants: Iterable[Mutant], root: Path) -> None:
    """Raises `Unusable`, with all that is wrong, unless each mutant can be planted and tested."""
    faults: list[str] = []
    for mutant in mutants:
        file = root / PACKAGES / "tailrace" / mutant.file
        times = file.read_text().count(mutant.old) if file.is_file() else 0
        if times != 1:
            faults.append(f"{mutant.id}: its old text is {times} times in {mutant.file}, not once")
        if mutant.old == mutant.new:
            faults.append(f"{mutant.id}: its new text is its old one")
        if not any(match for pattern in mutant.tests for match in root.glob(pattern)):
            faults.append(f"{mutant.id}: no tests are known for {mutant.file}")
    if faults:
        raise Unusable("\n".join(faults))


def run(mutants: Sequence[Mutant], root: Path, jobs: int) -> dict[str, str | None]:
    """Test the mutants in several copies side by side: for each id the test that caught it."""
    caught: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for job in range(jobs):
            copies.put(Copy(root, Path(scratch) / str(job)))

        def test(mutant: Mutant) -> Outcome:
            copy = copies.get()
            try:
                return copy.test(mutant)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(jobs) as threads:
            futures = [threads.submit(test, mutant) for mutant in mutants]
            try:
                for future in as_completed(futures):
                    outcome = future.result()
                    caught[outcome.mutant.id] = outcome.caught
                    _say(outcome)
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise
    return {mutant.id: caught[mutant.id] for mutant in mutants}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: the tests catch every mutant; 1: one survived; 2: that could not be found out."""
    parser = argparse.ArgumentParser(prog="python -m devtools.mutants", description=__doc__)
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="the tree to be mutated")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="these mutants")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--report", type=Path, help="a JSON file: {id: test that caught it}")
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    try:
        mutants = chosen(read(TABLE), options.only)
        check(mutants, root)
        caught = run(mutants, root, max(1, options.jobs))
    except Unusable as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if options.report is not None:
        options.report.write_text(json.dumps(caught, indent=2) + "\n")
    survivors = [name for name, test in caught.items() if test is None]
    sys.stdout.write(f"{len(caught) - len(survivors)} of {len(caught)} caught\n")
    return 1 if survivors else 0


def _tracked(root: Path) -> list[str]:
    """The files that git knows and that are there, as they are now, and those it would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True, text=True).stdout
    names = sorted(set(filter(None, listed.split("\0"))))
    return [name for name in names if (root / name).is_file() or (root / name).is_symlink()]


def _write(file: Path, text: str) -> None:
    """Change a module. Its compiled form goes: it is told apart by seconds and length only."""
    file.write_text(text)
    Path(cache_from_source(str(file))).unlink(missing_ok=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End whatever is left of pytest and of the servers that it has started: its own group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _say(outcome: Outcome) -> None:
    result = "SURVIVED" if outcome.caught is None else f"caught by {outcome.caught}"
    sys.stdout.write(f"{outcome.mutant.id}: {result} ({outcome.seconds:.0f} s)\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
