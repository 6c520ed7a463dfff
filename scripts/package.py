"""The assets of a deployment: layers, functions and jobs in `build/<platform>`, without Docker.

`python -m scripts.package lambda` is for AWS: wheels for the Python and processor of Lambda, and of
Glue, which are selected by their names, so nothing has to run. `host` is for the local engines: the
same versions for this machine's Python. The same inputs give the same bytes, and only outdated
assets are built.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from scripts import package_glue
from scripts.package_glue import NotBuilt
from scripts.package_sizes import TooLarge, check, table

Platform: TypeAlias = Literal["lambda", "host"]

ROOT = Path(__file__).resolve().parent.parent

LAYERS = {
    "http": ("core", "shared", "web", "tokens", "aviso"),
    "wait": ("core", "shared", "web", "tokens"),
    "live": ("core", "shared", "streaming", "tokens", "aviso"),
    "cable": ("core", "shared", "tokens"),
    "heartbeat": ("core", "shared"),
    "dispatch": ("core", "shared"),
    "purge": ("core", "shared"),
    "webhooks": ("core", "shared", "tokens"),
    "rotate_secret": ("core", "shared"),
    "edge_keys": ("core", "shared", "signing"),
}
"""The layers of each function; Lambda allows five."""

PYTHON_VERSION = "3.14"
"""The newest for which every package has a wheel: orjson has none for 3.15 yet."""

MACHINE = "aarch64"
"""Lambda's arm64: a fifth cheaper for each second than x86_64."""

GLIBC = ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_34")
"""Platforms of wheels that run on Amazon Linux 2023, whose glibc is 2.34: Lambda's and Glue's."""

GLUE, WHEELS = ON_GLUE = ("glue", "wheels")
"""The jobs, and the wheels for their zip, which are downloaded only when the pins change."""

IMAGE = "image"
"""The folder from which the container image is built."""

IMAGE_SOURCES = (
    "Dockerfile",
    "layers/core/python/tailrace",
    "requirements/serve.txt",
    "scripts/trim_packages.py",
)

LOCAL_ONLY = (
    "__main__.py",
    "aws/costs.py",
    "aws/handlers/container.py",
    "aws/plan.py",
    "aws/prices.py",
    "aws/runtime/container_metrics.py",
    "cli",
    "client",
    "console/built",
    "protocols/action_cable/in_process/application_client.py",
    "server.py",
    "web/log_lines.py",
    "web/prometheus.py",
    "web/uvicorn",
)
"""Modules of the product that no function uses: most need packages which no layer has."""

LEFT_OUT = (
    "python/bin",
    "python/boto3/data",
    "python/boto3/examples",
    "python/aws_lambda_powertools/event_handler/openapi/swagger_ui/*.min.*",
    "python/*/*.c",
    "python/shapely/tests",
    "python/numpy/**/tests",
    "python/numpy/**/*.pyi",
    *(f"python/{package}/**/*.pxd" for package in ("numpy", "shapely")),
    *(f"python/numpy/_core/{folder}" for folder in ("include", "lib")),
    *(f"python/numpy/{folder}" for folder in ("_pyinstaller", "f2py", "random", "testing")),
    # These differ between machines. Entry points and licences stay.
    "python/.lock",
    *(f"python/*.dist-info/{record}" for record in ("RECORD", "INSTALLER", "REQUESTED", "WHEEL")),
)
"""Files of packages that are not used at run time, and records of pip and uv."""

SERVICES = {"cloudfront", "cloudfront-keyvaluestore", "dynamodb", "s3", "secretsmanager", "sts"}
"""The services whose definitions botocore keeps; all of them would be 27 MB."""

UV = Path(sys.executable).with_name("uv")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]

TIMESTAMP = 315_532_800
"""The time of every file: 1980-01-01, the earliest that a zip file can hold."""


class NotInstalled(Exception):
    """A package is missing, could not be downloaded, or does not match its hash."""


def build(platform: Platform, into: Path = ROOT / "build") -> Path:
    """Bring `into/<platform>` up to date; raise NotInstalled, NotBuilt or TooLarge."""
    place = into / platform
    place.mkdir(parents=True, exist_ok=True)
    with _lock(place):
        stamp = place / ".stamp"
        built: dict[str, str] = json.loads(stamp.read_bytes()) if stamp.exists() else {}
        wanted = {asset: _inputs(asset, platform) for asset in _assets()}
        if built != wanted:
            stamp.unlink(missing_ok=True)  # an interrupted build starts again
            for asset in built.keys() - wanted.keys():
                shutil.rmtree(place / asset)
            for asset in (a for a, inputs in wanted.items() if built.get(a) != inputs):
                print(f"Packaging {asset} for {platform} …", file=sys.stderr)
                _make(asset, platform, place)
            check(place, LAYERS)
            stamp.write_text(json.dumps(wanted))
    return place


def digest(tree: Path) -> str:
    """Digest every name, mode and byte below a folder."""
    return _digest(tree, sorted(tree.rglob("*")))


def _assets() -> Iterator[str]:
    for layer in sorted({layer for layers in LAYERS.values() for layer in layers}):
        yield f"layers/{layer}"
    for handler in sorted(ROOT.glob("functions/*/handler.py")):
        yield f"functions/{handler.parent.name}"
    if (ROOT / "Dockerfile").exists():
        yield IMAGE
    if (ROOT / "glue_jobs").is_dir():
        yield WHEELS
        yield GLUE


def _inputs(asset: str, platform: Platform) -> str:
    """Digest all sources of an asset."""
    python = sys.version if platform == "host" else _python(asset)
    makers = [Path(__file__), *([Path(package_glue.__file__)] if asset == GLUE else [])]
    sources = [*_requirements(asset), *_sources(asset)]
    return f"{python} {_digest(makers[0].parent, makers)} {_digest(ROOT, sources)}"


def _python(asset: str) -> str:
    return package_glue.PYTHON_VERSION if asset in ON_GLUE else PYTHON_VERSION


def _requirements(asset: str) -> list[Path]:
    """The file that pins the packages of an asset, if it has any."""
    if asset in ON_GLUE:
        return [ROOT / "requirements" / "glue-modules.txt"]
    return [*ROOT.glob(f"requirements/{asset.replace('layers/', 'layer-')}.txt")]


def _sources(asset: str) -> list[Path]:
    if asset == GLUE:
        return package_glue.sources(ROOT)
    if asset == IMAGE:
        parts = [
            part for path in IMAGE_SOURCES for part in (ROOT / path, *(ROOT / path).rglob("*"))
        ]
        return sorted(part for part in parts if "__pycache__" not in part.parts)
    return sorted(p for p in (ROOT / asset).rglob("*") if "__pycache__" not in p.parts)


def _digest(root: Path, paths: Iterable[Path]) -> str:
    whole = hashlib.sha256()
    for file in (path for path in paths if path.is_file()):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        whole.update(f"{file.relative_to(root)} {file.stat().st_mode:o} {content}\n".encode())
    return whole.hexdigest()


def _make(asset: str, platform: Platform, place: Path) -> None:
    new = place / ".new"
    shutil.rmtree(new, ignore_errors=True)
    if asset == GLUE:
        package_glue.assemble(ROOT, place / WHEELS, new)
    elif asset == WHEELS:
        _download(new, asset, platform)
    elif asset == IMAGE:
        _copy_image(new)
    elif _requirements(asset):
        _install(new / "python", asset, platform)
    else:
        shutil.copytree(ROOT / asset, new, ignore=shutil.ignore_patterns("__pycache__"))
        if asset == "layers/core":
            for path in LOCAL_ONLY:
                package_glue.remove(new / "python" / "tailrace" / path)
    _prune(new)
    if platform == "host" and asset not in (*ON_GLUE, IMAGE):
        _compile(new)
    _normalize(new)
    shutil.rmtree(place / asset, ignore_errors=True)
    (place / asset).parent.mkdir(exist_ok=True)
    new.rename(place / asset)


def _copy_image(target: Path) -> None:
    for path in IMAGE_SOURCES:
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / path, place)


def _install(target: Path, asset: str, platform: Platform) -> None:
    """Install the packages of an asset, with uv or, if set-up could not get it, with pip."""
    command: list[str | Path]
    if UV.exists():
        # Copied, not linked: modes and times change here, and must not in uv's cache.
        command = [UV, "pip", "install", "--link-mode=copy", "--python", sys.executable]
        if platform == "lambda":
            command += [f"--python-platform={MACHINE}-{GLIBC[-1]}"]
            command += [f"--python-version={PYTHON_VERSION}"]
    else:
        command = [*PIP, "install", "--no-compile", *_tags(asset, platform)]
    _run([*command, "--target", target], asset, platform)


def _download(target: Path, asset: str, platform: Platform) -> None:
    """Download the wheels of an asset, which uv cannot."""
    _run([*PIP, "download", "--dest", target, *_tags(asset, platform)], asset, platform)


def _tags(asset: str, platform: Platform) -> list[str]:
    """The options that make pip select wheels for another machine."""
    if platform == "host":
        return []
    machine = package_glue.MACHINE if asset in ON_GLUE else MACHINE
    platforms = [f"--platform={glibc}_{machine}" for glibc in GLIBC]
    return ["--implementation=cp", f"--python-version={_python(asset)}", *platforms]


def _run(command: list[str | Path], asset: str, platform: Platform) -> None:
    requirements = _requirements(asset)[0]
    command += ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    index = (line.removeprefix("export ").split("=", 1) for line in _index().splitlines())
    env = {**os.environ, **{name: value.strip("'") for name, value in index}}
    if subprocess.run([*command, "--requirement", requirements], env=env).returncode:
        raise NotInstalled(f"{requirements.name} could not be installed for {platform}")


def _index() -> str:
    """The package index and certificates that set-up has configured for uv."""
    file = UV.parent.parent / ".index"
    return file.read_text() if file.exists() else ""


def _prune(tree: Path) -> None:
    unwanted = [path for pattern in LEFT_OUT for path in tree.glob(pattern)]
    services = tree.glob("python/botocore/data/*/")
    for path in [*unwanted, *(service for service in services if service.name not in SERVICES)]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)  # its folder may have been removed


def _compile(tree: Path) -> None:
    """Add bytecode that Python does not check against sources, so that it never writes any."""
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode=unchecked-hash"]
    env = {**os.environ, "PYTHONHASHSEED": "0"}
    subprocess.run([*command, "-s", tree, tree], env=env, check=True)


def _normalize(tree: Path) -> None:
    """Give files and folders one time and, except for executables, one mode."""
    for path in [tree, *tree.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        os.utime(path, (TIMESTAMP, TIMESTAMP))


@contextmanager
def _lock(place: Path) -> Iterator[None]:
    """Lock a folder: concurrent builds would overwrite each other's files."""
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts.package", description="Build the assets of a deployment."
    )
    parser.add_argument("platform", choices=get_args(Platform))
    try:
        place = build(parser.parse_args().platform)
    except (NotInstalled, NotBuilt, TooLarge) as failure:
        raise SystemExit(str(failure)) from failure
    print(f"In {place.relative_to(ROOT)}:\n{table(place, LAYERS)}")


if __name__ == "__main__":
    main()
