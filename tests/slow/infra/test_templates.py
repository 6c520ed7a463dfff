"""CloudFormation's rules on every variant of the stacks."""

from __future__ import annotations

from devtools.templates import CHECKED
from tests.integration.infra.test_app import lint


def test_all_templates_are_what_cloudformation_takes() -> None:
    lint(*CHECKED)
