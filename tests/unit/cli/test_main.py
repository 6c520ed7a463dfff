from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING
from unittest.mock import Mock

import click
import pytest
from click.testing import CliRunner

from devtools.processes import ROOT
from tailrace import __version__
from tailrace.cli import COMMANDS, main
from tailrace.cli.exit_codes import Exit

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run, Wire

PAGE = ROOT / "docs" / "cli.md"


def modules_after(*args: str) -> set[str]:
    script = (
        "import sys\n"
        "from tailrace.cli import main\n"
        f"try: main({list(args)!r}, prog_name='tailrace')\n"
        "except SystemExit: pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return set(done.stderr.decode().split())


def test_help_lists_every_command() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_in_whole_sentences(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert "..." not in result.stdout


def test_python_dash_m_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "--version"], capture_output=True, check=True
    )
    assert done.stdout == f"tailrace, version {__version__}\n".encode()


def test_serve_does_not_import_the_client() -> None:
    assert not {"httpx", "tailrace.cli.client"} & modules_after("serve", "--port", "x")


def test_client_commands_do_not_import_the_server() -> None:
    modules = modules_after("read", "s", "--url", "http://127.0.0.1:1")
    assert "httpx" in modules
    assert (
        not {"tailrace.server", "tailrace.protocols.durable_streams", "tailrace.store", "uvicorn"}
        & modules
    )


def test_help_imports_neither() -> None:
    assert not {"httpx", "orjson", "rich", "tailrace.server"} & modules_after("append", "--help")


@pytest.mark.parametrize(
    ("args", "message", "command"),
    [
        (["--bogus"], "No such option '--bogus'", ""),
        (["lss"], "No such command 'lss'. Did you mean 'ls'?", ""),
        (["read"], "Missing argument 'STREAM'", " read"),
        (
            ["read", ".."],
            "Invalid value: '..' is not the path of a stream, such as chat/room-1",
            " read",
        ),
        (
            ["create", "s", "--ttl", "soon"],
            "Invalid value for '--ttl': 'soon' is not a duration such as 90, 15m, 12h or 7d",
            " create",
        ),
        (
            ["append", "s", "no/such/file"],
            "Invalid value for '[FILE]': 'no/such/file': No such file or directory",
            " append",
        ),
        (
            ["create", "s", "--content-type", "a\nb"],
            "Invalid value for '-t' / '--content-type': 'a\\nb' is not plain ASCII text",
            " create",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(args: list[str], message: str, command: str) -> None:
    result = CliRunner().invoke(main, args, prog_name="tailrace")
    assert result.exit_code == Exit.USAGE
    assert result.stderr == f"tailrace: {message} (see 'tailrace{command} --help')\n"
    assert result.stdout == ""


def test_invalid_url_is_reported() -> None:
    result = CliRunner().invoke(main, ["read", "s", "--url", "ftp://x"], prog_name="tailrace")
    assert result.exit_code == Exit.USAGE
    assert "'--url'" in result.stderr
    assert "'ftp://x' is not a URL such as http://127.0.0.1:4437" in result.stderr


def test_wrong_usage_is_json_with_json() -> None:
    result = CliRunner().invoke(main, ["read", "--json"], prog_name="tailrace")
    assert json.loads(result.stderr)["error"] == {
        "code": "USAGE",
        "message": "Missing argument 'STREAM' (see 'tailrace read --help')",
        "exit_code": 2,
    }


def test_options_of_clients_may_come_first(wire: Wire, run: Run) -> None:
    wire.will(204).will(204)
    nowhere = "http://127.0.0.1:1"
    args = ["--url", wire.url, "--token", "abc", "--json", "rm", "s"]
    result = run(*args, TAILRACE_URL=nowhere)
    assert json.loads(result.stdout)["deleted"]
    assert run("--url", nowhere, "rm", "s", "--url", wire.url).exit_code == 0
    assert [request.headers.get("Authorization") for request in wire.requests] == [
        "Bearer abc",
        None,
    ]


def test_options_of_clients_are_refused_elsewhere(run: Run) -> None:
    result = run("--url", "http://127.0.0.1:1", "secret")
    assert (result.exit_code, result.stderr) == (
        2,
        "tailrace: 'secret' takes no --url (see 'tailrace --help')\n",
    )


def complete(words: str, url: str) -> list[str]:
    env = {
        **os.environ,
        "TAILRACE_URL": url,
        "_TAILRACE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    script = "from tailrace.cli import main; main(prog_name='tailrace')"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=env, capture_output=True, check=True, text=True)
    return [line.partition(",")[2] for line in done.stdout.split("\n") if line]


def test_a_shell_completes_commands_and_streams(wire: Wire) -> None:
    assert complete("tailrace he", wire.url) == ["head"]
    assert complete("tailrace ls --so", wire.url) == ["--sort"]
    streams = [{"path": "chat/a%20b"}, {"path": "chat/c"}]
    wire.will(200, json.dumps({"streams": streams, "next": None}).encode())
    assert complete("tailrace read chat/", wire.url) == ["chat/a b", "chat/c"]
    assert complete("tailrace read chat/", "http://127.0.0.1:1") == []


def test_interrupt_is_exit_130_without_output(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("tailrace.cli.client.CommandClient.locate", interrupt)
    result = CliRunner().invoke(main, ["read", "s"])
    assert (result.exit_code, result.output) == (130, "")


def test_the_page_documents_every_command_option_and_exit_code() -> None:
    page = PAGE.read_text()
    context = click.Context(main)
    missing = [f"### {name}" for name in COMMANDS if f"tailrace {name}" not in page]
    for name in set(COMMANDS) - {"serve", "config"}:
        command = main.get_command(context, name)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option):
                missing += [flag for flag in option.opts if f"`{flag}" not in page]
                if isinstance(option.envvar, str) and f"`{option.envvar}`" not in page:
                    missing.append(option.envvar)
    missing += [str(code.value) for code in Exit if f"| {code.value} |" not in page]
    assert not missing
