"""When `scripts.package` builds, and when it refuses to."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import package
from scripts.package import build
from scripts.package_sizes import MEGABYTE, TooLarge, check

LAYERS = {"http": ("core",), "live": ("core",)}


@pytest.fixture(autouse=True)
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small product of one layer and two functions."""
    monkeypatch.setattr(package, "ROOT", tmp_path)
    monkeypatch.setattr(package, "LAYERS", LAYERS)
    monkeypatch.setattr(package, "LOCAL_ONLY", ())
    write(tmp_path / "layers" / "core" / "python" / "product.py")
    for function in LAYERS:
        write(tmp_path / "functions" / function / "handler.py")
    return tmp_path


def write(file: Path, text: str = "", size: int = 0) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    with file.open("r+b") as opened:
        opened.truncate(max(size, len(text)))


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_only_changed_packages_are_built(sources: Path) -> None:
    place = build("host", sources / "build")
    layer, http, live = (place / a for a in ("layers/core", "functions/http", "functions/live"))
    before = [inode(layer), inode(http), inode(live)]
    build("host", sources / "build")
    assert [inode(layer), inode(http), inode(live)] == before

    write(sources / "functions" / "http" / "handler.py", "changed = True")
    build("host", sources / "build")
    assert (http / "handler.py").read_text() == "changed = True"
    assert [inode(layer), inode(live)] == [before[0], before[2]]


def test_wheels_are_fetched_only_when_their_pins_change(sources: Path) -> None:
    write(sources / "requirements" / "glue-modules.txt", "six==1.17.0")
    write(sources / "pyproject.toml")
    write(sources / "glue_jobs" / "sweep.py")
    wheels, jobs = inputs()
    write(sources / "glue_jobs" / "sweep.py", "changed = True")
    assert inputs()[0] == wheels
    assert inputs()[1] != jobs
    write(sources / "requirements" / "glue-modules.txt", "six==1.18.0")
    assert inputs()[0] != wheels


def inputs() -> tuple[str, str]:
    return package._inputs(package.WHEELS, "lambda"), package._inputs(package.GLUE, "lambda")


def test_files_removed_with_their_folder_are_not_missed(sources: Path) -> None:
    numpy = sources / "layers" / "core" / "python" / "numpy"
    write(numpy / "lib" / "tests" / "test_lib.pyi")
    write(numpy / "lib" / "code.py")
    place = build("lambda", sources / "build") / "layers" / "core" / "python" / "numpy"
    assert [path.relative_to(place) for path in place.rglob("*.*")] == [Path("lib/code.py")]


def test_a_function_that_is_gone_is_removed(sources: Path) -> None:
    place = build("host", sources / "build")
    (sources / "functions" / "live" / "handler.py").unlink()
    build("host", sources / "build")
    assert not (place / "functions" / "live").exists()
    assert (place / "functions" / "http").exists()


def test_an_interrupted_build_starts_again(sources: Path) -> None:
    place = build("host", sources / "build")
    write(sources / "layers" / "core" / "python" / "product.py", "product = 2")
    write(sources / "layers" / "core" / "python" / "blob", size=6 * MEGABYTE)
    with pytest.raises(TooLarge):
        build("host", sources / "build")
    write(sources / "layers" / "core" / "python" / "product.py")
    (sources / "layers" / "core" / "python" / "blob").unlink()
    build("host", sources / "build")
    assert (place / "layers" / "core" / "python" / "product.py").read_text() == ""


def test_a_layer_that_is_too_large_names_its_largest_packages(sources: Path) -> None:
    for name, megabytes in (("small", 1), ("large", 6)):
        write(sources / "layers" / "core" / "python" / name / "data", size=megabytes * MEGABYTE)
    wanted = r"layer core has 7\.00 MB .* at most 6 MB .*: large 6\.00 MB, small 1\.00"
    with pytest.raises(TooLarge, match=wanted):
        build("lambda", sources / "build")


def test_a_function_that_is_too_large_names_its_layers(tmp_path: Path) -> None:
    write(tmp_path / "layers" / "core" / "python" / "data", size=2 * MEGABYTE)
    write(tmp_path / "functions" / "http" / "data", size=119 * MEGABYTE)
    wanted = r"function http has 121\.00 MB .*: functions/http 119\.00 MB, layers/core 2\.00 MB"
    with pytest.raises(TooLarge, match=wanted):
        check(tmp_path, LAYERS)
