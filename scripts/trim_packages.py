"""Remove files of installed packages that the server never uses: half of their size.

`python trim_packages.py FOLDER` is a step of the Dockerfile, and needs nothing but Python.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

SERVICES = {"dynamodb", "s3", "secretsmanager", "sts", "sso", "sso-oidc", "signin"}
"""The services whose definitions botocore keeps: those of the store, and those of credentials."""

UNUSED = (
    "bin",
    "boto3/data",
    "boto3/examples",
    "shapely/tests",
    "numpy/**/tests",
    # The build backend of the editable install.
    "hatchling",
    "hatchling-*.dist-info",
    "pathspec",
    "pathspec-*.dist-info",
    "pluggy",
    "pluggy-*.dist-info",
    "trove_classifiers",
    "trove_classifiers-*.dist-info",
)


def trim(folder: Path) -> None:
    unused = [path for pattern in UNUSED for path in folder.glob(pattern)]
    services = folder.glob("botocore/data/*/")
    for path in [*unused, *(each for each in services if each.name not in SERVICES)]:
        if path.exists():  # Its folder may have been removed.
            shutil.rmtree(path)


if __name__ == "__main__":
    trim(Path(sys.argv[1]))
