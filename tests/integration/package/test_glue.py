"""The assets of Glue: the scripts of the jobs, and a zip of wheels that is all they need."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from scripts.package import GLIBC, Platform, build
from scripts.package_glue import JOBS, MACHINE, PYTHON_VERSION, ZIP, script
from scripts.package_sizes import LARGEST_GLUE, MEGABYTE, TooLarge, check
from tailrace import __version__
from tests.integration.package.test_assets import LAMBDA_PYTHON
from tests.support.requirements import pins

OF_GLUE = {"numpy", "pandas", "py4j", "pyarrow", "pyspark"}
"""Packages that are not in the zip because Glue has them."""

IMPORT_ALL = """
import importlib, pkgutil, tailrace
for module in pkgutil.walk_packages(tailrace.__path__, "tailrace."):
    importlib.import_module(module.name)
import tailrace.segments.format, tailrace.store.dynamodb.store
"""

FIND_ALL = """
import ast, importlib.util, pathlib, sys
missing = set()
for file in [*pathlib.Path("glue_jobs").rglob("*.py"), *map(pathlib.Path, sys.argv[2:])]:
    for node in ast.walk(ast.parse(file.read_text(), file)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
        for name in names:
            if name.partition(".")[0] in sys.argv[1].split(","):
                continue
            try:
                found = importlib.util.find_spec(name)
            except ModuleNotFoundError:
                found = None
            if found is None:
                missing.add(f"{file} imports {name}")
assert not missing, missing
"""


def wheels(platform: Platform) -> list[str]:
    with zipfile.ZipFile(build(platform) / "glue" / ZIP) as archive:
        return [name for name in archive.namelist() if name.endswith(".whl")]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip as Glue's pip installs it, without another place to look for packages."""
    place = tmp_path_factory.mktemp("glue")
    with zipfile.ZipFile(build("host") / "glue" / ZIP) as archive:
        archive.extractall(place)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-index", "--find-links", str(place / "wheels"), "--no-compile"]
    command += ["--target", str(place / "site"), "-r", str(place / "wheels" / "requirements.txt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return place / "site"


def run(site: Path, code: str, *arguments: str) -> None:
    """In a Python that has nothing else of this project."""
    done = subprocess.run(
        [LAMBDA_PYTHON, "-B", "-c", code, *arguments],
        env={"PYTHONPATH": str(site)},
        cwd=site,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_the_product_finds_its_packages(installed: Path) -> None:
    run(installed, IMPORT_ALL)


def test_the_jobs_find_theirs_and_the_scripts_the_jobs(installed: Path) -> None:
    scripts = [str(build("host") / "glue" / script(job)) for job in JOBS]
    run(installed, FIND_ALL, ",".join(OF_GLUE), *scripts)


def test_the_versions_are_those_of_the_functions(installed: Path) -> None:
    for name, version in pins("layer-shared").items():
        for metadata in installed.glob(f"{name.replace('-', '_')}-*.dist-info"):
            assert metadata.name == f"{name.replace('-', '_')}-{version}.dist-info"


def test_glue_gets_wheels_of_its_processor_and_python_only() -> None:
    version = tuple(map(int, PYTHON_VERSION.split(".")))
    platforms = [f"{glibc}_{MACHINE}" for glibc in GLIBC]
    fit = {
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, platforms=platforms),
    }
    found: dict[str, frozenset[Tag]] = {}
    for wheel in wheels("lambda"):
        name, _, _, tags = parse_wheel_filename(wheel.rpartition("/")[2])
        found[name] = tags
        assert tags & fit, wheel
    assert found.keys() == {canonicalize_name("tailrace"), *pins("glue-modules")}


def test_the_zip_lists_the_packages_to_install() -> None:
    with zipfile.ZipFile(build("lambda") / "glue" / ZIP) as archive:
        wanted = archive.read("wheels/requirements.txt").decode().split()
    assert len(wanted) == len(wheels("lambda"))
    assert {f"orjson=={pins('layer-shared')['orjson']}", f"tailrace=={__version__}"} <= set(wanted)


def test_a_zip_that_is_too_large_names_its_largest_wheels(tmp_path: Path) -> None:
    (tmp_path / "glue").mkdir()
    with zipfile.ZipFile(tmp_path / "glue" / ZIP, "w") as archive:
        archive.writestr("wheels/small.whl", b"")
        archive.writestr("wheels/large.whl", bytes((LARGEST_GLUE + 1) * MEGABYTE))
    wanted = rf"glue has {LARGEST_GLUE + 1}\.00 MB .*: wheels/large.whl {LARGEST_GLUE + 1}\.00 MB,"
    with pytest.raises(TooLarge, match=wanted):
        check(tmp_path, {})


def test_every_job_has_a_script() -> None:
    made = {file.name for file in (build("lambda") / "glue").iterdir()}
    assert made == {ZIP, *map(script, JOBS)}
