from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import jwt
import pytest
from click.testing import CliRunner, Result

from tailrace.auth.keys import Keys
from tailrace.auth.signed_names import sign, verify_name
from tailrace.auth.tokens import SCOPES, TokenVerifier
from tailrace.cli import main
from tailrace.configuration import load_settings
from tailrace.settings import Settings, variable
from tests.support.auth import SECRET


def invoke(*args: str, stdin: str | None = None, **env: str) -> Result:
    unset = dict.fromkeys(map(variable, fields(Settings)))
    runner = CliRunner(env={**unset, **env})
    return runner.invoke(main, args, input=stdin, prog_name="tailrace", catch_exceptions=False)


def claims_of(result: Result, **options: Any) -> dict[str, Any]:
    assert (result.exit_code, result.stderr) == (0, "")
    return jwt.decode(result.stdout.strip(), SECRET, ["HS256"], **options)


# sign


def test_a_signed_name_is_printed() -> None:
    result = invoke("sign", "chat/room-1", TAILRACE_SECRET=SECRET)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == sign("chat/room-1", SECRET) + "\n"


@pytest.mark.parametrize("name", ["my room", "комната/é", "a%2Fb", "--help-me", "room/🚀"])
def test_name_is_passed_unencoded(name: str) -> None:
    result = invoke("sign", "--", name, TAILRACE_SECRET=SECRET)
    assert verify_name(result.stdout.strip(), [SECRET]) == name


def test_streams_secret_overrides_the_general_one_and_the_first_signs() -> None:
    result = invoke("sign", "a", TAILRACE_SECRET="general", TAILRACE_STREAMS_SECRET="first second")
    assert result.stdout.strip() == sign("a", "first")


def test_the_broadcast_key_is_the_one_that_the_server_expects(tmp_path: Path) -> None:
    expected = Keys.from_settings(Settings(secret=SECRET)).broadcast[0].decode()
    assert invoke("sign", "--broadcast-key", TAILRACE_SECRET=SECRET).stdout == f"{expected}\n"
    own = invoke("sign", "--broadcast-key", TAILRACE_SECRET=SECRET, TAILRACE_BROADCAST_KEY="a b")
    assert own.stdout == "a\n"
    (tmp_path / "secret").write_text(SECRET)
    file = ["--secret-file", str(tmp_path / "secret")]
    assert invoke("sign", "--broadcast-key", *file).stdout == f"{expected}\n"
    assert "no key" in invoke("sign", "--broadcast-key").stderr
    assert "takes no NAME" in invoke("sign", "a", "--broadcast-key").stderr
    assert "name the stream" in invoke("sign", TAILRACE_SECRET=SECRET).stderr


def test_a_secret_is_long_random_and_fit_for_a_variable() -> None:
    made = {invoke("secret").stdout.strip() for _ in range(3)}
    assert len(made) == 3
    assert all(len(each) == 43 and not set(each) & set(" \"'$") for each in made)
    assert len(json.loads(invoke("secret", "--json").stdout)["secret"]) == 43


def test_json_output() -> None:
    result = invoke("sign", "a", "--json", TAILRACE_SECRET=SECRET)
    assert json.loads(result.stdout) == {"name": "a", "signed": sign("a", SECRET)}
    result = invoke("token", "--scope", "admin", "--json", TAILRACE_SECRET=SECRET)
    made = json.loads(result.stdout)
    assert made["claims"] == jwt.decode(made["token"], SECRET, ["HS256"])


@pytest.mark.parametrize("content", [SECRET, f"{SECRET}\n", f"\n{SECRET} second\n"])
def test_the_secret_may_be_in_a_file(tmp_path: Path, content: str) -> None:
    file = tmp_path / "secret"
    file.write_text(content)
    for args in (["--secret-file", str(file)], ["--secret-file", "-"]):
        result = invoke("sign", "a", *args, stdin=content, TAILRACE_SECRET="other")
        assert result.stdout.strip() == sign("a", SECRET)


@pytest.mark.parametrize("command", [("sign", "a"), ("token", "--scope", "admin")])
def test_without_a_secret_nothing_is_created(command: tuple[str, ...], tmp_path: Path) -> None:
    special = {"sign": "TAILRACE_STREAMS_SECRET", "token": "TAILRACE_JWT_SECRET"}[command[0]]
    for env in ({}, {"TAILRACE_SECRET": "none"}, {"TAILRACE_SECRET": "s", special: "none"}):
        result = invoke(*command, **env)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"set {special} or TAILRACE_SECRET" in result.stderr
    empty = tmp_path / "empty"
    empty.touch()
    result = invoke(*command, "--secret-file", str(empty), TAILRACE_SECRET=SECRET)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"'{empty}' is empty" in result.stderr


def test_an_empty_name_is_not_signed() -> None:
    result = invoke("sign", "", "--json", TAILRACE_SECRET=SECRET)
    assert (result.exit_code, result.stdout) == (2, "")
    assert json.loads(result.stderr)["error"]["code"] == "CANNOT_SIGN"


# token


def test_token_has_the_requested_claims() -> None:
    begun = int(time.time())
    result = invoke(
        "token", "--scope", "write", "--scope", "read", "--streams", "chat/*", "--streams", "a,b",
        "--ttl", "12h", "--subject", "ada", TAILRACE_SECRET=SECRET,
    )  # fmt: skip
    claims = claims_of(result)
    assert begun <= claims["iat"] <= time.time()
    assert claims == {
        "sub": "ada",
        "scope": "write read",
        "streams": ["chat/*", "a,b"],
        "iat": claims["iat"],
        "exp": claims["iat"] + 12 * 3600,
    }


def test_token_is_valid_for_an_hour_by_default() -> None:
    spaced = invoke("token", "--scope", "write  read", "--streams", "a", TAILRACE_SECRET=SECRET)
    assert claims_of(spaced)["scope"] == "write read"
    claims = claims_of(invoke("token", "--scope", "admin", TAILRACE_SECRET=SECRET))
    assert claims["exp"] - claims["iat"] == 3600
    assert claims.keys() == {"scope", "iat", "exp"}


def test_server_accepts_tokens_created_with_its_settings() -> None:
    env = {
        "TAILRACE_JWT_SECRET": SECRET * 2,
        "TAILRACE_JWT_ALGORITHM": "HS512",
        "TAILRACE_JWT_AUDIENCE": "tailrace",
        "TAILRACE_JWT_ISSUER": "me",
    }
    result = invoke("token", "--scope", "admin", **env)
    settings = load_settings(env)
    tokens = TokenVerifier(settings, Keys.from_settings(settings))
    grant = tokens.verify_bearer(result.stdout.strip(), time.time_ns() // 1_000_000)
    assert grant.scopes == SCOPES


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "Missing option '--scope'"),
        (["--scope", "root"], "'root' is not one of 'read', 'write', 'admin'"),
        (["--scope", "read root"], "'root' is not one of 'read', 'write', 'admin'"),
        (["--scope", ""], "'' is not one of 'read', 'write', 'admin'"),
        (["--scope", "read"], "name the streams that the token is for with --streams"),
        (["--scope", "admin", "--ttl", "0"], "--ttl must be at least 1 second"),
        (["--scope", "admin", "--ttl", "31d"], "at most TAILRACE_JWT_MAX_AGE, 2592000"),
        (["--scope", "admin", "--ttl", "soon"], "'soon' is not a duration"),
    ],
)
def test_wrong_usage_is_exit_2(args: list[str], message: str) -> None:
    result = invoke("token", *args, TAILRACE_SECRET=SECRET)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_token_of_a_private_key_cannot_be_created() -> None:
    env = {"TAILRACE_JWT_ALGORITHM": "RS256", "TAILRACE_JWKS": "keys.json"}
    result = invoke("token", "--scope", "admin", **env)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "needs the private key" in result.stderr


@pytest.mark.parametrize(
    "env", [{"TAILRACE_PORT": "x"}, {"TAILRACE_JWT_SECRET": "ssh-rsa AAAA"}], ids=str
)
def test_a_bad_setting_is_named(env: dict[str, str]) -> None:
    result = invoke("sign", "a", **env)
    assert (result.exit_code, result.stdout) == (2, "")
    assert next(iter(env)) in result.stderr


# Secrets


@pytest.mark.parametrize("command", ["sign", "token", "serve"])
def test_help_shows_no_secret(command: str) -> None:
    secrets = {variable(setting): f"s3Krit-{setting.name}" for setting in fields(Settings)
               if setting.metadata["secret"]}  # fmt: skip
    shown = invoke(command, "--help", **secrets).output
    assert "s3Krit" not in shown


def test_there_is_no_option_for_a_secret() -> None:
    for command in (["sign", "a"], ["token"], ["serve"]):
        result = invoke(*command, "--secret", "s3Krit")
        assert result.exit_code == 2
        assert "s3Krit" not in result.output


def test_signing_imports_no_server_or_client() -> None:
    script = (
        "import sys\n"
        "from tailrace.cli import main\n"
        "try: main(['sign', 'a'])\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=True,
        env={"TAILRACE_SECRET": SECRET},
    )
    assert done.stdout.decode().strip() == sign("a", SECRET)
    modules = set(done.stderr.decode().split())
    assert not {"jwt", "cryptography", "httpx", "asyncio", "tailrace.server"} & modules
