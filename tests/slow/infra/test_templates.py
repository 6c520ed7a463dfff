"""CloudFormation's rules on every variant of the stacks."""

from __future__ import annotations

from devtools.templates import CHECKED
from tests.integration.infra.test_app import lint


def test_cfn_lint_accepts_all_templates() -> None:
    lint(*CHECKED)
