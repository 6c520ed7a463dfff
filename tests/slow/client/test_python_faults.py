"""The Python client exactly once through many more faults; see tests/integration/python_client."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from devtools.fault_proxy.cutting import CuttingProxy
from devtools.fault_proxy.proxy import Action, FaultProxy
from devtools.other_servers import OtherServer, reference_server, rust_program, rust_server
from devtools.server import Server
from tests.support.python_client import WEIGHTS, check

ROUNDS = 20


def start(kind: str, data: Path) -> Server | OtherServer:
    if kind == "tailrace":
        return Server(data).start()
    if kind == "reference":
        return reference_server(data).start()
    if rust_program() is None:
        pytest.skip("without the Rust server: `make rust-server` installs it")
    return rust_server(data).start()


@pytest.mark.parametrize("kind", ["tailrace", "reference", "rust"])
async def test_many_faults(kind: str, tmp_path: Path) -> None:
    server = start(kind, tmp_path / "data")
    try:
        for seed in range(ROUNDS):
            chance = random.Random(seed)
            cuts = [chance.randrange(1, 4000) for _ in range(chance.randrange(100))]
            async with CuttingProxy(server.url, iter(cuts)) as proxy:
                await check(server.url, proxy.url, "sse" if seed % 2 else "long-poll")
            weights = {action: weight * chance.random() for action, weight in WEIGHTS.items()}
            weights[Action.PASS] = 50
            faults = FaultProxy(server.url, seed=seed, weights=weights, delay=(0.001, 0.05))
            async with faults:
                await asyncio.wait_for(check(server.url, faults.url, "long-poll"), 300)
    finally:
        server.stop()
