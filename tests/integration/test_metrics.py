"""`/metrics` of a server, read by the parser of Prometheus' own client."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from devtools.processes import ROOT
from devtools.server import Server
from tailrace.metrics import METRICS, Metric

SECRET = "a-secret-of-the-tests-of-metrics"
KEY = "a-key-for-the-scraper"
TEXT = {"content-type": "text/plain"}


def bearer(**claims: str) -> str:
    token = jwt.encode({**claims, "exp": time.time() + 60}, SECRET)
    return f"Bearer {token}"


def read(url: str, **options: Any) -> dict[tuple[str, ...], float]:
    """The samples, by their name and the values of their labels."""
    answer = httpx.get(f"{url}/metrics", **options)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_every_metric_is_shown_and_documented(server: Server) -> None:
    families = {
        family.name + ("_total" if family.type == "counter" and has_total(family.name) else "")
        for family in text_string_to_metric_families(httpx.get(f"{server.url}/metrics").text)
    }
    assert families >= METRICS.keys()
    own = {
        name for name in families - METRICS.keys() if not name.startswith(("process_", "python_"))
    }
    assert own == set()
    page = (ROOT / "docs" / "metrics.md").read_text()
    missing = [name for name, metric in METRICS.items() if row(name, metric) not in page]
    assert missing == []


def row(name: str, metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{name}` | {metric.kind} | {labels} | {metric.text} |"


def has_total(name: str) -> bool:
    """Whether a counter's name ends with `_total`, which the parser removes."""
    return f"{name}_total" in METRICS or name.startswith(("process_", "python_"))


def test_requests_and_appends_are_counted(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        url = f"{server.url}/v1/stream/a"
        httpx.put(url, headers=TEXT)
        for _ in range(3):
            httpx.post(url, headers=TEXT, content=b"12345")
        producer = {"producer-id": "p", "producer-epoch": "0", "producer-seq": "0"}
        for _ in range(2):
            httpx.post(url, headers={**TEXT, **producer}, content=b"6")
        httpx.get(url)
        httpx.post(url, headers={**TEXT, "stream-closed": "true"})
        httpx.post(url, headers=TEXT, content=b"late")
        httpx.get(f"{server.url}/v1/stream/none")
        got = read(server.url)
    assert got["appends_appended_total",] == 5, "closing is one of them"
    assert got["appends_bytes_total",] == 16
    assert got["appends_duplicates_total",] == 1
    assert got["appends_refused_total", "STREAM_CLOSED"] == 1
    assert got["answers_4xx_total",] == 2
    assert got["request_ms_count",] >= 10
    assert got["process_resident_memory_bytes",] > 1e6


def test_strangers_do_not_see_metrics(tmp_path: Path) -> None:
    env = {"TAILRACE_SECRET": SECRET, "TAILRACE_METRICS_KEY": KEY}
    with Server(tmp_path / "data", env) as server:
        url = f"{server.url}/metrics"
        assert httpx.get(url).status_code == 401
        for wrong in (KEY[:-1], "none"):
            headers = {"authorization": f"Bearer {wrong}"}
            assert httpx.get(url, headers=headers).status_code == 401
        one = bearer(scope="read", streams="chat/*")
        assert httpx.get(url, headers={"authorization": one}).status_code == 403
        for allowed in (f"Bearer {KEY}", bearer(scope="admin")):
            read(server.url, headers={"authorization": allowed})


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_metrics_are_only_read(server: Server, method: str) -> None:
    assert httpx.request(method, f"{server.url}/metrics").status_code == 405


# Dashboards and alerts


GRAFANA = ROOT / "devtools" / "grafana"


def metrics_of(query: str) -> set[str]:
    """The metrics that a query names."""
    words = set(re.findall(r"[a-z][a-z0-9_]*_[a-z0-9_]*(?=[{\[ ,)]|$)", query))
    return {re.sub(r"_(?:bucket|sum|count)$", "", word) for word in words} - FUNCTIONS


FUNCTIONS = {"histogram_quantile", "label_values", "event_type"}


def test_dashboard_and_alerts_name_metrics_that_exist() -> None:
    dashboard = json.loads((GRAFANA / "tailrace.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = yaml.safe_load((GRAFANA / "alerts.yml").read_text())["groups"][0]["rules"]
    queries += [rule["expr"] for rule in rules]
    named = set[str]().union(*map(metrics_of, queries))
    assert {name for name in named if not name.startswith("process_")} <= METRICS.keys()
    assert len(named) > 25


def test_every_alert_has_a_line_that_says_what_to_do() -> None:
    page = (ROOT / "docs" / "operating.md").read_text()
    rules = yaml.safe_load((GRAFANA / "alerts.yml").read_text())["groups"][0]["rules"]
    assert [rule["alert"] for rule in rules if f"| `{rule['alert']}` |" not in page] == []


def test_every_metric_is_counted_somewhere() -> None:
    product = ROOT / "layers" / "core" / "python" / "tailrace"
    texts = [path.read_text() for path in product.rglob("*.py") if path != product / "metrics.py"]
    counted = {name for name in METRICS if any(f'"{name}"' in text for text in texts)}
    by_status = {name for name in METRICS if name.startswith("answers_")}
    assert METRICS.keys() - counted - by_status == set()
