"""Authorization to read, write and administer, by scope and by role."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from tailrace.web.messages import Response
from tests.support.aviso import Aviso, StartAviso

SECRET = "a-secret-of-more-than-32-bytes-as-it-should-be"

SCHEMA = """\
notification_schema:
"""
for _name, _auth in {
    "plain": "",
    "open": "auth: {required: false}",
    "any": "auth: {required: true}",
    "roles": "auth: {required: true, read_roles: {lab: [reader]}, write_roles: {lab: [writer]}}",
    "realm": "auth: {required: true, read_roles: {lab: ['*']}, write_roles: {lab: ['*']}}",
}.items():
    SCHEMA += f"""\
  {_name}:
    topic: {{base: {_name}, key_order: [name]}}
    identifier:
      name: {{type: StringHandler, required: false}}
    {_auth}
"""


@pytest.fixture
async def closed(start: StartAviso, tmp_path: Path) -> Aviso:
    file = tmp_path / "schema.yaml"
    file.write_text(SCHEMA)
    return await start(
        aviso_schema=str(file), secret=SECRET, aviso_admin_roles="ops=admin", public_streams="x"
    )


def token(**claims: Any) -> str:
    return jwt.encode({"exp": time.time() + 7200, **claims}, SECRET)


ROLES = {"realm": "lab", "username": "ada"}
TOKENS = {
    "nobody": None,
    "basic": "Basic YTpi",
    "user": token(sub="eve"),
    "nameless": token(realm="lab", roles=["reader"]),
    "reader": token(**ROLES, roles=["reader"]),
    "writer": token(**ROLES, roles=["writer", "other"]),
    "stranger": token(realm="other", sub="eve", roles=["reader", "writer"]),
    "homeless": token(sub="eve", roles=["reader", "writer"]),
    "admin": token(realm="ops", sub="root", roles=["admin"]),
    "not admin": token(realm="lab", sub="eve", roles=["admin"]),
    "read": token(scope="read", streams="aviso/*"),
    "write": token(scope="write", streams="aviso/*"),
    "scope admin": token(scope="admin"),
    "other streams": token(scope="admin", streams="chat/**", sub="eve"),
    "expired": token(sub="ada", exp=time.time() - 60),
    "forged": jwt.encode({"sub": "ada", "exp": time.time() + 7200}, "x" * 32),
    "garbage": "Bearer garbage",
}


def authorization(caller: str) -> dict[str, str]:
    value = TOKENS[caller]
    if value is None:
        return {}
    return {"authorization": value if " " in value else f"Bearer {value}"}


async def send(aviso: Aviso, method: str, path: str, caller: str, fields: object = None) -> int:
    answer = await aviso.send(method, f"/api/v1/{path}", fields, authorization(caller))
    if answer.status in (401, 403):
        assert isinstance(answer, Response)
        body = json.loads(answer.body)
        assert body.keys() == {"code", "error", "message", "request_id"}
        code = {401: "UNAUTHORIZED", 403: "FORBIDDEN"}[answer.status]
        assert (body["code"], body["error"]) == (code, code.lower())
        challenged = dict(answer.headers).get(b"www-authenticate", b"").startswith(b"Bearer")
        assert challenged is (answer.status == 401)
    return answer.status


Answers = dict[str, tuple[int, int]]
"""The statuses of reading and writing, by event type."""


def table(text: str) -> list[tuple[str, Answers]]:
    rows = []
    for line in text.strip().splitlines():
        caller, *parts = (part.strip() for part in line.split("|"))
        statuses = [(int(part[:3]), int(part[-3:])) for part in parts]
        events = ("plain", "open", "any", "roles", "realm")
        rows.append((caller, dict(zip(events, statuses, strict=True))))
    return rows


@pytest.mark.parametrize(
    ("caller", "expected"),
    table("""
        nobody        | 401 401 | 200 200 | 401 401 | 401 401 | 401 401
        basic         | 401 401 | 200 200 | 401 401 | 401 401 | 401 401
        user          | 403 403 | 200 200 | 200 403 | 403 403 | 403 403
        nameless      | 403 403 | 200 200 | 401 401 | 401 401 | 401 401
        reader        | 403 403 | 200 200 | 200 403 | 200 403 | 200 200
        writer        | 403 403 | 200 200 | 200 403 | 403 200 | 200 200
        stranger      | 403 403 | 200 200 | 200 403 | 403 403 | 403 403
        homeless      | 403 403 | 200 200 | 200 403 | 403 403 | 403 403
        admin         | 403 403 | 200 200 | 200 200 | 200 200 | 200 200
        read          | 200 403 | 200 200 | 200 401 | 200 401 | 200 401
        write         | 403 200 | 200 200 | 401 200 | 401 200 | 401 200
        scope admin   | 200 200 | 200 200 | 200 200 | 200 200 | 200 200
        other streams | 403 403 | 200 200 | 200 403 | 403 403 | 403 403
        expired       | 401 401 | 401 401 | 401 401 | 401 401 | 401 401
        forged        | 401 401 | 401 401 | 401 401 | 401 401 | 401 401
        garbage       | 401 401 | 401 401 | 401 401 | 401 401 | 401 401
    """),
)
async def test_event_types_are_authorized_by_scope_and_role(
    closed: Aviso, caller: str, expected: Answers
) -> None:
    for event, (read, write) in expected.items():
        fields: dict[str, Any] = {"event_type": event, "identifier": {"name": "a"}}
        assert await send(closed, "POST", "notification", caller, fields) == write, event
        assert await send(closed, "POST", "watch", caller, fields) == read, event
        replay = {**fields, "from_id": "0"}
        assert await send(closed, "POST", "replay", caller, replay) == read, event


@pytest.mark.parametrize(
    ("caller", "expected"),
    [("nobody", 401), ("basic", 401), ("user", 403), ("reader", 403), ("admin", 200),
     ("not admin", 403), ("read", 403), ("write", 403), ("scope admin", 200),
     ("other streams", 403), ("expired", 401), ("forged", 401)],
)  # fmt: skip
async def test_only_admins_may_delete(closed: Aviso, caller: str, expected: int) -> None:
    assert await send(closed, "DELETE", "admin/wipe/all", caller) == expected
    missing = 404 if expected == 200 else expected
    assert await send(closed, "DELETE", "admin/notification/plain@1", caller) == missing
    assert await send(closed, "DELETE", "admin/nothing", caller) == missing


@pytest.mark.parametrize("caller", ["nobody", "forged", "garbage", "reader"])
async def test_schemas_are_public(closed: Aviso, caller: str) -> None:
    assert await send(closed, "GET", "schema", caller) == 200
    assert await send(closed, "GET", "schema/roles", caller) == 200


async def test_an_invalid_token_is_reported_before_other_errors(closed: Aviso) -> None:
    assert await send(closed, "POST", "notification", "forged", b"no JSON") == 401
    assert await send(closed, "POST", "notification", "nobody", b"no JSON") == 400
    assert await send(closed, "GET", "nothing", "forged") == 401
    assert await send(closed, "GET", "nothing", "nobody") == 404


async def test_fields_are_validated_after_authorization(closed: Aviso) -> None:
    fields = {"event_type": "roles", "identifier": {"wrong": 1}}
    assert await send(closed, "POST", "notification", "reader", fields) == 403
    assert await send(closed, "POST", "notification", "writer", fields) == 400


async def test_an_idempotency_key_belongs_to_its_caller(closed: Aviso) -> None:
    for caller in ("reader", "admin", "reader"):
        headers = {**authorization(caller), "idempotency-key": "same"}
        fields = {"event_type": "realm", "identifier": {"name": "a"}}
        await closed.request("POST", "/api/v1/notification", fields, headers)
    view = await closed.streams.view("aviso/realm", 0)
    assert len(view.bodies) == 2
