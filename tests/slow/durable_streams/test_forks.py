"""The deepest chain of forks."""

from __future__ import annotations

import httpx

from devtools.server import Server
from tests.support.wire import TEXT, error_of


def fork_of(path: str) -> dict[str, str]:
    return {"stream-forked-from": f"/v1/stream/{path}"}


def test_the_depth_of_forks_is_limited(server: Server) -> None:
    with httpx.Client(base_url=f"{server.url}/v1/stream/", trust_env=False, timeout=120) as client:
        grow_and_delete(client, "deep")


def grow_and_delete(client: httpx.Client, path: str) -> None:
    deepest = 256
    client.put(f"{path}/0", content=b"0", headers=TEXT)
    for n in range(1, deepest + 1):
        forked = client.put(
            f"{path}/{n}", content=b"%d" % (n % 10), headers=fork_of(f"{path}/{n - 1}")
        )
        assert forked.status_code == 201
    expected = b"".join(b"%d" % (n % 10) for n in range(deepest + 1))
    assert client.get(f"{path}/{deepest}").content == expected
    beyond = client.put(f"{path}/beyond", headers=fork_of(f"{path}/{deepest}"))
    assert (beyond.status_code, error_of(beyond)["code"]) == (409, "STREAM_CONFLICT")
    for n in range(deepest):
        assert client.delete(f"{path}/{n}").status_code == 204
    assert client.get(f"{path}/{deepest}").content == expected
    assert client.delete(f"{path}/{deepest}").status_code == 204
    assert [client.head(f"{path}/{n}").status_code for n in (0, 100, deepest)] == [404] * 3
