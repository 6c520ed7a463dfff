"""Sizes of the assets of a deployment, and their limits."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeAlias

Layers: TypeAlias = Mapping[str, Collection[str]]
"""The layers of each function."""

LARGEST_LAYER = {
    "core": 6,  # 0.75 of them are the viewer of /docs
    "shared": 22,
    "web": 18,
    "streaming": 1,
    "tokens": 20,
    "signing": 15,
    "aviso": 65,  # half of it is the linear algebra that numpy does not start without
}
"""Megabytes unzipped: room for the next versions, not for a package that slips in."""

LARGEST_FUNCTION = {
    "http": 120,
    "wait": 62,
    "live": 105,
    "cable": 42,
    "heartbeat": 25,
    "dispatch": 25,
    "purge": 25,
    "webhooks": 42,
    "rotate_secret": 25,
    "edge_keys": 38,
}
"""Megabytes unzipped with the layers. Lambda allows 250, but a cold start has to fetch them."""

LARGEST_GLUE = 22
"""Megabytes of the jobs with their zip of wheels, which every worker downloads first."""

MEGABYTE = 1_000_000


class TooLarge(Exception):
    """An asset exceeds its limit; the message names it and its largest parts."""


def check(place: Path, layers: Layers) -> None:
    """Raise TooLarge if an asset exceeds its limit."""
    for layer, allowed in LARGEST_LAYER.items():
        packages = place.glob(f"layers/{layer}/python/*")
        _allow(f"layer {layer}", {path.name: unzipped(path) for path in packages}, allowed)
    for function in layers:
        assets = {asset: unzipped(place / asset) for asset in _whole(function, layers)}
        _allow(f"function {function}", assets, LARGEST_FUNCTION[function])
    _allow("glue", _jobs(place), LARGEST_GLUE)


def table(place: Path, layers: Layers) -> str:
    """The sizes of the layers, of each function with its layers, and of the jobs."""
    sizes = {
        f"{asset.parent.name}/{asset.name}": (unzipped(asset), zipped(asset))
        for asset in sorted([*place.glob("layers/*"), *place.glob("functions/*")])
    }
    jobs = place / "glue"
    rows = {asset: size for asset, size in sizes.items() if asset.startswith("layers/")}
    for function in layers:
        whole = [sizes[asset] for asset in _whole(function, layers)]
        rows[f"{function} with its layers"] = (sum(u for u, _ in whole), sum(z for _, z in whole))
    rows["glue"] = (unzipped(jobs), zipped(jobs))
    lines = [f"{asset:26}{_mb(u):>12}{_mb(z):>12}" for asset, (u, z) in rows.items()]
    return "\n".join([f"{'':26}{'unzipped':>12}{'zipped':>12}", *lines])


def unzipped(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def zipped(tree: Path) -> int:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in tree.rglob("*"):
            file.write(path, path.relative_to(tree))
    return archive.tell()


def _whole(function: str, layers: Layers) -> list[str]:
    return [f"functions/{function}", *(f"layers/{layer}" for layer in layers[function])]


def _jobs(place: Path) -> dict[str, int]:
    """The scripts, and each wheel of their zip."""
    sizes = {script.name: unzipped(script) for script in place.glob("glue/*.py")}
    for archive in place.glob("glue/*.zip"):
        with zipfile.ZipFile(archive) as file:
            sizes |= {entry.filename: entry.file_size for entry in file.infolist()}
    return sizes


def _allow(asset: str, sizes: Mapping[str, int], megabytes: int) -> None:
    size = sum(sizes.values())
    if size > megabytes * MEGABYTE:
        largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:5]
        raise TooLarge(
            f"{asset} has {_mb(size)} unzipped, but at most {megabytes} MB are allowed;"
            " its largest parts: " + ", ".join(f"{name} {_mb(sizes[name])}" for name in largest)
        )


def _mb(size: int) -> str:
    return f"{size / MEGABYTE:.2f} MB"
