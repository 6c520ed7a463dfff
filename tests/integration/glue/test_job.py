"""Common to all jobs: arguments, and metrics that are documented."""

from __future__ import annotations

import pytest

from devtools.processes import ROOT
from glue_jobs.shared.job import METRICS, on_glue, parse, switch, table

DOCS = ROOT / "docs" / "metrics.md"


def test_every_metric_is_documented_as_the_code_says() -> None:
    rows = DOCS.read_text()
    for name, meaning in METRICS.items():
        assert f"| `{name}` | {meaning} |" in rows


def test_settings_are_flags_of_the_same_names() -> None:
    given = [
        "--table",
        "log",
        "--bucket",
        "history",
        "--trim-grace",
        "3600",
        "--region",
        "eu-west-1",
    ]
    settings, arguments = parse("job", "", given)
    assert (settings.store, settings.table, settings.bucket) == ("dynamodb", "log", "history")
    assert settings.trim_grace == 3600
    assert arguments.region == "eu-west-1"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--tables", "log"], "unrecognized arguments: --tables log"),
        (["--trim-grace", "1"], "--trim-grace must be at least 120"),
        (["--retention", "x"], "TAILRACE_RETENTION has the rule 'x'"),
    ],
)
def test_a_wrong_flag_is_named(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse("job", "", given)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_arguments_that_glue_adds_are_ignored() -> None:
    given = ["--JOB_NAME", "tailrace-dev-sweep", "--TempDir", "s3://x", "--table", "log"]
    assert on_glue(given)
    settings, _ = parse("job", "", given)
    assert settings.table == "log"


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False)])
def test_a_switch_has_a_value(text: str, value: bool) -> None:
    assert switch(text) is value


def test_a_table_is_aligned() -> None:
    made = table([("a", 1), ("long name", 22)], ("name", "n"))
    assert made.splitlines() == ["name       n", "---------  --", "a          1", "long name  22"]
