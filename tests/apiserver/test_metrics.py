"""Metrics of the server."""

from __future__ import annotations

from allot.apiserver.metrics import Metrics
from allot.process.metrics import render


def test_the_text_is_what_the_library_writes() -> None:
    metrics = Metrics()
    for number in range(3):
        labels = ("GET", 'a "b"\\c\n', "v1", f"kind-{number}", "status", "cluster")
        metrics.observe(labels, 200, 0.1)
        metrics.observe(labels, 404, 7.25)
        metrics.observe(labels, 404, 1000.0)
        metrics.running(labels, 1)
    assert metrics.text() == render(metrics.registry)
