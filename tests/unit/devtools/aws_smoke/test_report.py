"""Outcomes by where they were measured, the report, and the options of the command."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError

from devtools.aws_smoke.__main__ import listing, main, measure, parse
from devtools.aws_smoke.checks import CHECKS, NAMES, Check, run
from devtools.aws_smoke.findings import Finding, NotMeasured, Outcome, Report, judge
from devtools.aws_smoke.target import Target, first_secret

HERE = Target(
    name="here",
    url="http://127.0.0.1",
    cable_url="ws://127.0.0.1",
    secret="s" * 32,
    origin_secret="o",
    function_urls={},
)


class Account:
    """An account without anything in it."""

    def client(self, service: str, region: str | None = None) -> None:
        raise NotImplementedError

    def output(self, name: str) -> str:
        raise NotMeasured(f"the stacks have no output {name}")


THERE = replace(HERE, account=Account())


def check(result: Finding | BaseException, here: str = "no AWS here") -> Check:
    def measure(_: Target) -> Finding:
        if isinstance(result, BaseException):
            raise result
        return result

    return Check("any", "Does it?", 1, 0, measure, here)


GOOD, BAD = judge(True, "good", n=1), judge(False, "bad")
DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetIt")


@pytest.mark.parametrize(
    ("result", "here", "there"),
    [
        (GOOD, Outcome.NOT_HERE, Outcome.PASS),
        (BAD, Outcome.FAIL, Outcome.FAIL),
        (NotMeasured("no metric"), Outcome.NOT_HERE, Outcome.NOT_MEASURED),
        (DENIED, Outcome.NOT_HERE, Outcome.NOT_MEASURED),
        (AssertionError("no answer"), Outcome.FAIL, Outcome.FAIL),
        (KeyError("x"), Outcome.FAIL, Outcome.FAIL),
    ],
)
def test_a_local_success_is_not_one_on_aws(
    result: Finding | BaseException, here: Outcome, there: Outcome
) -> None:
    assert run(check(result), HERE).outcome is here
    assert run(check(result), THERE).outcome is there


def test_the_figures_of_a_local_success_are_kept_with_the_reason() -> None:
    assert run(check(GOOD), HERE) == Finding(Outcome.NOT_HERE, "no AWS here", {"n": 1})
    assert run(check(GOOD, here=""), HERE) is GOOD


def test_after_ctrl_c_the_report_has_what_was_complete() -> None:
    complete = replace(check(GOOD, here=""), name="complete")
    report = measure(HERE, [complete, check(KeyboardInterrupt())])
    assert report.interrupted
    assert {name: each.outcome for name, each in report.findings.items()} == {
        "complete": Outcome.PASS,
        "any": Outcome.NOT_MEASURED,
    }


def test_the_report_tells_figures_and_what_is_left() -> None:
    finding = judge(False, "late", p50_ms=12.3456, held=["a", "b"], none=[])
    report = Report("account 1", {"any": finding}, left=["stack x"])
    text = report.to_text()
    assert "fail                 any: late" in text
    assert "p50_ms = 12.346" in text
    assert "held = a, b" in text
    assert "none = none" in text
    assert "LEFT IN THE ACCOUNT" in text
    document = json.loads(report.to_json())
    assert document["left"] == ["stack x"]
    assert document["checks"][0]["numbers"]["p50_ms"] == 12.3456
    assert document["checks"][0]["outcome"] == "fail"


@pytest.mark.parametrize(
    ("report", "failed"),
    [
        (Report("x", {"a": GOOD}), False),
        (Report("x", {"a": Finding(Outcome.NOT_MEASURED, "")}), False),
        (Report("x", {"a": BAD}), True),
        (Report("x", {"a": GOOD}, left=["stack"]), True),
        (Report("x", {}, error="no deployment"), True),
    ],
)
def test_failures_errors_and_leftovers_fail_the_run(report: Report, failed: bool) -> None:
    assert report.failed is failed


def test_every_check_is_listed_with_its_cost() -> None:
    text = listing()
    assert all(f"\n{each.name} " in text and each.question in text for each in CHECKS)
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--stage", "prod"], "--stage must be smoke"),
        (["--stage", "dev"], "--stage must be smoke"),
        (["--only", "basics,bass"], "unknown: bass; the checks are basics"),
        (["-c", "stage=prod"], "use --stage"),
        (["-c", "firewall"], "write a switch as name=value"),
    ],
)
def test_bad_options_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(arguments)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environment", "said"),
    [({}, "no region"), ({"AWS_REGION": "eu-west-1"}, "no valid credentials")],
)
def test_without_an_account_the_command_says_what_is_missing(
    environment: dict[str, str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    nowhere = {"AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}
    for name, value in {**nowhere, "AWS_EC2_METADATA_DISABLED": "true", **environment}.items():
        monkeypatch.setenv(name, value)
    assert main([]) == 2
    assert said in capsys.readouterr().err


def test_the_secret_that_signs_is_the_first() -> None:
    assert first_secret('{"secret": "new old"}') == "new"
