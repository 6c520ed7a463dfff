"""docs/streaming-runtime.md names what there is to know."""

from __future__ import annotations

import re

from devtools.processes import ROOT
from tests.integration.runtime.conftest import LAYER

PAGE = (ROOT / "docs" / "streaming-runtime.md").read_text()
SOURCE = "".join(path.read_text() for path in sorted((LAYER / "python").rglob("*.py")))
WRAPPED = (LAYER / "asgi-stream").read_text()


def test_every_variable_is_on_the_page() -> None:
    variables = re.findall(r'environ[.\w]*[\[(]"(\w+)"', SOURCE)
    variables += re.findall(r"\$\{([A-Z_]+)", WRAPPED)
    assert {"ASGI_STREAM_PADDING", "LAMBDA_TASK_ROOT"} <= set(variables)
    assert [name for name in variables if f"`{name}`" not in PAGE] == []


def test_every_fault_is_on_the_page() -> None:
    faults = re.findall(r"class (\w+)\(Fault\)", SOURCE)
    assert "DeadlineExceeded" in faults
    assert [name for name in faults if f"`{name}`" not in PAGE] == []
