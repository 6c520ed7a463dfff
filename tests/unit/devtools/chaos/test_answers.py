"""Which answers, logs and reads of damaged files a campaign accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.chaos import damage, site
from devtools.chaos.calls import problem
from devtools.chaos.damage import apply, unnamed, wrong
from devtools.chaos.fuzz import run
from devtools.chaos.plan import HARM, Damage
from devtools.chaos.report import Report
from devtools.load.wire import Response
from devtools.server import Server
from tailrace.configuration import load_settings
from tailrace.log.offsets import START, token

RETRY = b"\r\nRetry-After: 1"
BUSY = b'{"error":{"code":"STORE_UNAVAILABLE"}}'
AVISO = b'{"code":"NOTIFICATION_STORAGE_FAILED"}'


def response(status: int, body: bytes = b"", headers: bytes = b"") -> Response:
    return Response(status, b"HTTP/1.1 %d x%b" % (status, headers), body, len(body))


@pytest.mark.parametrize(
    ("answer", "while_harmed", "otherwise"),
    [
        (response(200), True, True),
        (response(404), True, True),
        (response(503, BUSY, RETRY), True, False),
        (response(507, BUSY, RETRY), True, False),
        (response(503, BUSY), False, False),
        (response(500, AVISO), True, False),
        (response(500, BUSY), False, False),
        (response(502), False, False),
    ],
)
def test_5xx_need_a_reason(answer: Response, while_harmed: bool, otherwise: bool) -> None:
    assert (problem(answer, lenient=True) is None) is while_harmed
    assert (problem(answer, lenient=False) is None) is otherwise


@pytest.mark.parametrize(
    ("log", "complaints", "complaints_while_harmed"),
    [
        ("2026-01-31 12:00:00 WARNING tailrace: again\n", 0, 0),
        ("2026-01-31 12:00:00 ERROR tailrace: no\n" * 3, 1, 0),
        ("2026-01-31 12:00:00 ERROR tailrace: no\nTraceback (most recent call last):\n", 2, 1),
    ],
)
def test_errors_in_a_log_need_a_reason(
    tmp_path: Path, log: str, complaints: int, complaints_while_harmed: int
) -> None:
    server = Server(tmp_path / "data")
    server.log.write_text(log)
    for lenient, expected in ((False, complaints), (True, complaints_while_harmed)):
        report = Report()
        site.check_log(server, report, lenient=lenient)
        assert len(report.violations) == expected


CONTENT = b"0123456789"


def read(begin: int, end: int, headers: bytes = b"") -> Response:
    offset = token(1, end).encode()
    return response(200, CONTENT[begin:end], b"\r\nStream-Next-Offset: %b%b" % (offset, headers))


UP_TO_DATE = b"\r\nStream-Up-To-Date: true"


@pytest.mark.parametrize(
    ("what", "answer", "accepted"),
    [
        ("bodies", read(0, 10, UP_TO_DATE), True),
        ("bodies", read(0, 4), True),
        ("bodies", read(0, 4, UP_TO_DATE), False),
        ("tailrace.db-wal", read(0, 4, UP_TO_DATE), True),
        ("bodies", read(1, 5), False),
        ("tailrace.db", read(1, 5), False),
        ("bodies", response(500), True),
        ("bodies", response(404), False),
        ("tailrace.db", response(404), True),
        ("tailrace.db", response(410), False),
    ],
)
def test_damage_may_not_change_what_is_read(what: str, answer: Response, accepted: bool) -> None:
    assert (wrong(Damage(what, "flip", 0.5), CONTENT, START, answer) is None) is accepted


def test_damage_must_be_named() -> None:
    assert unnamed(response(200)) is None
    assert unnamed(response(500, b'{"error":{"code":"DAMAGED_DATA"}}')) is None
    assert unnamed(response(500, b'{"error":{"code":"INTERNAL"}}')) is not None
    assert unnamed(response(500, b"oh no")) is not None


@pytest.mark.parametrize(("what", "how"), [(what, how) for what in HARM for how in HARM[what]])
def test_damage_changes_one_file(tmp_path: Path, what: str, how: str) -> None:
    names = [f"{what}/1/a", f"{what}/1/b"] if "." not in what else [what]
    before = {tmp_path / name: bytes(range(256)) for name in names}
    for file, content in before.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    apply(Damage(what, how, 0.6), tmp_path)
    after = {file: file.read_bytes() if file.exists() else b"none" for file in before}
    (changed,) = (file for file in before if before[file] != after[file])
    assert changed.name in ("b", what)
    if how == "head":
        assert after[changed][damage.HEAD_BYTES :] == before[changed][damage.HEAD_BYTES :]


@pytest.mark.parametrize("settings", [site.SETTINGS, run.OPEN, run.CLOSED])
def test_the_settings_of_servers_exist(settings: dict[str, str]) -> None:
    values = vars(load_settings(settings))
    assert {name.removeprefix("TAILRACE_").lower() for name in settings} <= values.keys()


def test_a_report_counts_violations_beside_what_was_checked() -> None:
    report = Report()
    report.count("answers", 1234)
    report.violation("answers", "500")
    report.violation("logs", "a traceback")
    rows = [line.split() for line in report.table()]
    assert ["answers", "1,234", "1"] in rows
    assert ["logs", "0", "1"] in rows
    assert ["2", "VIOLATIONS"] in rows
