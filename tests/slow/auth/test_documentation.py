"""`docs/auth.md`: its examples in JavaScript, which need Node."""

from __future__ import annotations

import json
import subprocess

from tailrace.auth.signed_names import verify_name
from tests.support.auth import SECRET
from tests.unit.auth.test_documentation import assert_taken, names_and_tokens


def value_after(code: str, variable: str) -> str:
    script = f"const secret = {json.dumps(SECRET)}\n{code}\nconsole.log({variable})"
    command = ["node", "--input-type=module", "-e", script]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def test_the_example_signs_a_name_that_verifies() -> None:
    (code,), _ = names_and_tokens("js")
    assert verify_name(value_after(code, "signed"), [SECRET]) == "chat/room-1"


def test_the_example_creates_a_token_that_is_accepted() -> None:
    _, (code,) = names_and_tokens("js")
    assert_taken(value_after(code, "token"))
