"""Signatures of webhooks, checked by Node: a verifier that shares no code with the signer."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from devtools.node import find_node
from tailrace.protocols.subscriptions.key_file import ACTIVATION_MS, KeyFile

NOW = 1_800_000_000_000
VERIFIER = Path(__file__).with_name("verify.mjs")


def verify(jwks: object, cases: list[tuple[str, bytes]]) -> Any:
    encoded = [
        {"header": header, "body": base64.b64encode(body).decode()} for header, body in cases
    ]
    done = subprocess.run(
        [find_node(), VERIFIER],
        input=json.dumps({"jwks": jwks, "cases": encoded}).encode(),
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


async def test_node_verifies_signatures_of_every_published_key(tmp_path: Path) -> None:
    before = await KeyFile(tmp_path).get(NOW)
    KeyFile(tmp_path).rotate(NOW, revoke=False)
    after = await KeyFile(tmp_path).get(NOW + ACTIVATION_MS)
    bodies = [b"", b"{}", b'{"text":"\xc3\xbc"}', b"\x00\xff" * 40_000, os.urandom(5000)]
    good = [(keys.sign(NOW // 1000, body), body) for keys in (before, after) for body in bodies]
    header = after.sign(NOW // 1000, b"{}")
    time, kid, signature = header.split(",")
    other_kid = f"kid={before.kid}"
    bad = [
        (header, b"{} "),
        (header, b""),
        (f"t={NOW // 1000 + 1},{kid},{signature}", b"{}"),
        (f"{time},{other_kid},{signature}", b"{}"),
        (f"{time},kid=ds_unknown,{signature}", b"{}"),
        (f"{time},{kid},{signature[:-4]}AAAA", b"{}"),
        (f"{time},{kid},{signature}=", b"{}"),
    ]
    found = verify(after.jwks(), good + bad)
    assert found["verdicts"] == [True] * len(good) + [False] * len(bad)
    kids = [key["kid"] for key in after.jwks()["keys"]]
    assert kids == [f"ds_{thumbprint}" for thumbprint in found["thumbprints"]]
