"""The metrics in the text format of Prometheus; only a server has the package for it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tailrace import metrics

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


class _Collector(Collector):
    def collect(self) -> Iterable[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for name, metric in metrics.METRICS.items():
            if metric.kind == "histogram":
                yield _histogram(name, metric.text)
            else:
                family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                families[name] = family(name, metric.text, labels=metric.labels)
                if not metric.labels and name not in metrics.gauges:
                    # A counter that appears only with its first event has no rate at that time.
                    metrics.counts[(name,)] += 0
        for (name, *labels), value in list(metrics.counts.items()):
            families[name].add_metric(labels, value)
        for name, values, value in metrics.read_gauges():
            families[name].add_metric(values, value)
        yield from families.values()


def _histogram(name: str, text: str) -> HistogramMetricFamily:
    histogram = metrics.histograms[name]
    bounds = [*map(str, map(float, histogram.bounds)), "+Inf"]
    buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
    return HistogramMetricFamily(name, text, buckets, histogram.sum)


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Collector())
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


_REGISTRY: Final = _registry()


def render() -> bytes:
    return generate_latest(_REGISTRY)
