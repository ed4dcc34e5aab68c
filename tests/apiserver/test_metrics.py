"""Metrics of the server."""

from __future__ import annotations

from allot.apiserver.metrics import Metrics
from allot.process.metrics import render
from apiserver.live import LiveServer


def test_the_text_is_what_the_library_writes() -> None:
    metrics = Metrics()
    for number in range(3):
        labels = ("GET", 'a "b"\\c\n', "v1", f"kind-{number}", "status", "cluster")
        metrics.observe(labels, 200, 0.1)
        metrics.observe(labels, 404, 7.25)
        metrics.observe(labels, 404, 1000.0)
        metrics.running(labels, 1)
    assert metrics.text() == render(metrics.registry)


async def test_checks_of_health_are_counted_apart(server: LiveServer) -> None:
    assert (await server.get("/readyz")).status == 200
    assert (await server.get("/livez/ping")).status == 200
    told = (await server.get("/metrics/slis")).raw.decode()
    assert 'kubernetes_healthcheck{name="ping",type="readyz"} 1' in told
    assert 'kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 1' in told
    assert "kubernetes_healthcheck" not in (await server.get("/metrics")).raw.decode()
