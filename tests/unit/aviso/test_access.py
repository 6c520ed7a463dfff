"""Who may read, write and administer, by tokens of both kinds."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from tailrace.web.messages import Response
from tests.support.aviso import Aviso, Make

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
async def closed(make: Make, tmp_path: Path) -> Aviso:
    file = tmp_path / "schema.yaml"
    file.write_text(SCHEMA)
    return await make(
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


def shown(who: str) -> dict[str, str]:
    value = TOKENS[who]
    if value is None:
        return {}
    return {"authorization": value if " " in value else f"Bearer {value}"}


async def status(aviso: Aviso, method: str, path: str, who: str, fields: object = None) -> int:
    answer = await aviso.ask(method, f"/api/v1/{path}", fields, shown(who))
    if answer.status in (401, 403):
        assert isinstance(answer, Response)
        told = json.loads(answer.body)
        assert told.keys() == {"code", "error", "message", "request_id"}
        code = {401: "UNAUTHORIZED", 403: "FORBIDDEN"}[answer.status]
        assert (told["code"], told["error"]) == (code, code.lower())
        challenged = dict(answer.headers).get(b"www-authenticate", b"").startswith(b"Bearer")
        assert challenged is (answer.status == 401)
    return answer.status


Answers = dict[str, tuple[int, int]]
"""By event type, the statuses of reading and writing."""


def table(text: str) -> list[tuple[str, Answers]]:
    rows = []
    for line in text.strip().splitlines():
        who, *parts = (part.strip() for part in line.split("|"))
        statuses = [(int(part[:3]), int(part[-3:])) for part in parts]
        events = ("plain", "open", "any", "roles", "realm")
        rows.append((who, dict(zip(events, statuses, strict=True))))
    return rows


@pytest.mark.parametrize(
    ("who", "expected"),
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
async def test_who_may_use_an_event_type(closed: Aviso, who: str, expected: Answers) -> None:
    for event, (read, write) in expected.items():
        fields: dict[str, Any] = {"event_type": event, "identifier": {"name": "a"}}
        assert await status(closed, "POST", "notification", who, fields) == write, event
        assert await status(closed, "POST", "watch", who, fields) == read, event
        replay = {**fields, "from_id": "0"}
        assert await status(closed, "POST", "replay", who, replay) == read, event


@pytest.mark.parametrize(
    ("who", "expected"),
    [("nobody", 401), ("basic", 401), ("user", 403), ("reader", 403), ("admin", 200),
     ("not admin", 403), ("read", 403), ("write", 403), ("scope admin", 200),
     ("other streams", 403), ("expired", 401), ("forged", 401)],
)  # fmt: skip
async def test_who_may_administer(closed: Aviso, who: str, expected: int) -> None:
    assert await status(closed, "DELETE", "admin/wipe/all", who) == expected
    missing = 404 if expected == 200 else expected
    assert await status(closed, "DELETE", "admin/notification/plain@1", who) == missing
    assert await status(closed, "DELETE", "admin/nothing", who) == missing


@pytest.mark.parametrize("who", ["nobody", "forged", "garbage", "reader"])
async def test_schemas_are_for_everybody(closed: Aviso, who: str) -> None:
    assert await status(closed, "GET", "schema", who) == 200
    assert await status(closed, "GET", "schema/roles", who) == 200


async def test_a_bad_token_is_told_before_anything_else(closed: Aviso) -> None:
    assert await status(closed, "POST", "notification", "forged", b"no JSON") == 401
    assert await status(closed, "POST", "notification", "nobody", b"no JSON") == 400
    assert await status(closed, "GET", "nothing", "forged") == 401
    assert await status(closed, "GET", "nothing", "nobody") == 404


async def test_who_may_not_learns_nothing_about_fields(closed: Aviso) -> None:
    fields = {"event_type": "roles", "identifier": {"wrong": 1}}
    assert await status(closed, "POST", "notification", "reader", fields) == 403
    assert await status(closed, "POST", "notification", "writer", fields) == 400


async def test_the_keys_of_two_callers_are_two(closed: Aviso) -> None:
    for who in ("reader", "admin", "reader"):
        headers = {**shown(who), "idempotency-key": "same"}
        fields = {"event_type": "realm", "identifier": {"name": "a"}}
        await closed.response("POST", "/api/v1/notification", fields, headers)
    view = await closed.streams.view("aviso/realm", 0)
    assert len(view.bodies) == 2
