"""Metrics for hot paths come out as Prometheus reads them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from allot.process.metrics import Counter, Gauge, Histogram, exponential, render


def test_what_is_counted_is_rendered() -> None:
    registry = CollectorRegistry()
    counter = Counter(registry, "things", "Things.", ("kind",))
    histogram = Histogram(registry, "wait_seconds", "Waits.", ("queue",), buckets=(0.1, 1, 10))
    gauge = Gauge(registry, "pending", "Pending.", ("queue",), lambda: {("active",): 3.0})
    counter.add("good")
    counter.add("good", amount=2)
    for value in (0.1, 0.5, 100):
        histogram.observe(value, "a")
    histogram.observe(5, "a", times=2)
    families = {family.name: family for family in text_string_to_metric_families(render(registry).decode())}
    assert [(sample.labels, sample.value) for sample in families["things"].samples] == [({"kind": "good"}, 3)]
    assert families["pending"].samples[0].value == 3
    samples = {(each.name, each.labels.get("le")): each.value for each in families["wait_seconds"].samples}
    assert samples["wait_seconds_bucket", "0.1"] == 1
    assert samples["wait_seconds_bucket", "1.0"] == 2
    assert samples["wait_seconds_bucket", "10.0"] == 4
    assert samples["wait_seconds_bucket", "+Inf"] == samples["wait_seconds_count", None] == 5
    assert samples["wait_seconds_sum", None] == 110.6
    told = "".join(line for each in (counter, histogram, gauge) for line in each.lines())
    assert told == render(registry).decode()
    assert histogram.count("a") == 5
    assert histogram.count("b") == 0


def test_buckets_grow_by_a_factor() -> None:
    assert exponential(1, 2, 4) == (1, 2, 4, 8)
