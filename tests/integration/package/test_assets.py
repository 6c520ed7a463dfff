"""The assets that `scripts.package` makes: the layers and functions as they are deployed."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from functools import cache
from pathlib import Path

import pytest

from scripts import package
from scripts.package import LAYERS, PYTHON_VERSION, SERVICES, Platform, build, digest
from scripts.package_sizes import LARGEST_FUNCTION, LARGEST_LAYER

LAMBDA_PYTHON = package.ROOT / ".engines" / "lambda" / "bin" / "python"
ELF_AARCH64 = 183
"""The number of the processor in the head of a binary."""

ENV = {
    "LAMBDA_TASK_ROOT": "/var/task",
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "TAILRACE_TABLE": "any",
    "TAILRACE_ORIGIN_SECRET": "any",
    "TAILRACE_ACCESS_SECRET": "any",
    "TAILRACE_EDGE_KEYS": "any",
    "TAILRACE_DISTRIBUTION": "any",
    "TAILRACE_CABLE_ENDPOINT": "https://any.execute-api.us-east-1.amazonaws.com/cable",
    "TAILRACE_HEARTBEAT": "any",
}
"""The environment in which the functions start."""

HANDLERS = {name: "handler.app" if name == "live" else "handler.handler" for name in LAYERS}

IMPORT_ALL = """
import importlib, pkgutil, tailrace
for module in pkgutil.walk_packages(tailrace.__path__, "tailrace."):
    importlib.import_module(module.name)
"""


@cache
def assets(platform: Platform) -> Path:
    return build(platform)


def run(code: str, function: str) -> None:
    """Runs it in Lambda's Python with nothing but the layers of a function."""
    place = assets("host")
    paths = [place / "functions" / function]
    paths += [place / "layers" / layer / "python" for layer in LAYERS[function]]
    done = subprocess.run(
        [LAMBDA_PYTHON, "-c", code],
        env={**ENV, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        cwd=place,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_packages_contain_no_build_paths() -> None:
    made_here = [*assets("host").rglob("*.pyc"), *assets("host").rglob("*.dist-info/*")]
    assert made_here
    for file in (path for path in made_here if path.is_file()):
        assert str(package.ROOT).encode() not in file.read_bytes(), file


def test_every_function_has_its_layers_and_its_limit() -> None:
    folders = {handler.parent.name for handler in package.ROOT.glob("functions/*/handler.py")}
    assert folders == LAYERS.keys() == LARGEST_FUNCTION.keys()
    assert {layer for layers in LAYERS.values() for layer in layers} == LARGEST_LAYER.keys()


def test_lambda_gets_binaries_of_its_processor_and_python_only() -> None:
    binaries = [*assets("lambda").rglob("*.so*")]
    assert binaries
    for binary in binaries:
        (machine,) = struct.unpack_from("<H", binary.read_bytes(), 18)
        assert machine == ELF_AARCH64, binary
        own = f"cpython-{PYTHON_VERSION.replace('.', '')}-" in binary.name
        # abi3 is for every Python 3, and libraries that a wheel brings along know of none.
        assert own or ".abi3." in binary.name or binary.parent.suffix == ".libs", binary


def test_the_exec_wrapper_can_be_executed() -> None:
    assert os.access(assets("lambda") / "layers" / "streaming" / "asgi-stream", os.X_OK)


@pytest.mark.parametrize("function", LAYERS)
def test_a_handler_starts_with_the_layers_of_its_function(function: str) -> None:
    before = digest(assets("host"))
    module, name = HANDLERS[function].split(".")
    run(f"import {module}; assert callable({module}.{name})", function)
    assert digest(assets("host")) == before, "Python wrote into the assets"


@pytest.mark.parametrize("function", ["http", "live", "cable"])
def test_serving_functions_can_verify_tokens_with_public_keys(function: str) -> None:
    run(
        "import jwt\n"
        "from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey\n"
        "key = Ed25519PrivateKey.generate()\n"
        "token = jwt.encode({'a': 1}, key, 'EdDSA')\n"
        "assert jwt.decode(token, key.public_key(), ['EdDSA']) == {'a': 1}",
        function,
    )


AVISO = """
from tailrace.protocols.aviso.config import AvisoConfig
from tailrace.protocols.aviso.routes import AvisoRoutes
from tailrace.settings import Settings
import shapely
assert AvisoConfig.load(Settings()).events
square = shapely.from_wkt("POLYGON((0 0, 2 0, 2 2, 0 2, 0 0))")
assert shapely.STRtree([square]).query(shapely.Point(1, 1), predicate="within").tolist() == [0]
assert shapely.intersection(square, shapely.box(1, 1, 3, 3)).area == 1
"""


@pytest.mark.parametrize("function", ["http", "live"])
def test_http_and_live_have_the_packages_of_aviso(function: str) -> None:
    run(AVISO, function)


@pytest.mark.parametrize("function", ["http", "live"])
def test_aviso_is_imported_on_first_use(function: str) -> None:
    run(
        "import handler, sys; assert not {'yaml', 'numpy', 'shapely'} & sys.modules.keys()",
        function,
    )


def test_no_function_has_more_layers_than_lambda_allows() -> None:
    assert max(map(len, LAYERS.values())) <= 5


def test_no_layer_contains_files_for_tests_or_compilers() -> None:
    layers = assets("lambda") / "layers" / "aviso"
    assert not [*layers.rglob("tests"), *layers.rglob("*.pyi"), *layers.rglob("*.[ah]")]
    assert not [*layers.rglob("*.pxd")]


def test_keys_can_sign_as_the_key_value_store_asks_for() -> None:
    run("import awscrt.auth, botocore.compat; assert botocore.compat.HAS_CRT", "edge_keys")


def test_every_module_of_the_product_finds_its_packages() -> None:
    run(IMPORT_ALL, "http")


def test_used_aws_services_are_packaged() -> None:
    asked = {
        service
        for folder in ("layers", "functions")
        for source in (package.ROOT / folder).rglob("*.py")
        if "cli" not in source.parts  # no layer has it
        for service in re.findall(r'client\(\s*"([a-z0-9-]+)"', source.read_text())
    }
    assert asked
    assert asked <= SERVICES
    data = assets("lambda") / "layers" / "shared" / "python" / "botocore" / "data"
    assert {folder.name for folder in data.iterdir() if folder.is_dir()} == SERVICES
