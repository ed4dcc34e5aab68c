"""The metrics APIs: what they answer, in the form in which metrics-server and adapters do."""

from __future__ import annotations

from typing import Any

import pytest

from allot.apiserver.errors import StatusError
from allot.apiserver.metricsapis.answers import MetricsApis, selecting_object
from allot.apiserver.metricsapis.scraping import Board
from allot.apiserver.request import ApiRequest, User
from allot.core.metrics.exposition import parse
from allot.core.metrics.pod_index import PodIndex

NOW = 1_800_000_000.0
WHEN = "2027-01-15T08:00:00Z"


def _board() -> Board:
    board = Board()
    board.nodes = {"n1": {"zone": "a"}, "silent": {}}
    board.pods = PodIndex(
        [("ns", "p", {"app": "x"}, "n1"), ("ns", "q", {"app": "y"}, "n1"), ("ns", "new", {"app": "x"}, "")]
    )
    for step in (0, 1):
        at = NOW - 15 + 15 * step
        text = f"node_cpu_usage_seconds_total {step * 15}\nnode_memory_working_set_bytes 2097152\n"
        for pod in ("p", "q"):
            labels = f'{{namespace="ns",pod="{pod}",container="c"}}'
            text += (
                f"container_cpu_usage_seconds_total{labels} {step * 3}\n"
                f"container_memory_working_set_bytes{labels} 1048576\n"
                f"container_start_time_seconds{labels} 5\n"
            )
        board.usage.put("e", ["n1"], parse(text, samples_max=100).samples, at)
    text = 'queue{namespace="ns",pod="p",kind="a"} 12.5\nqueue{namespace="ns",pod="q",kind="b"} 3\n'
    board.series.put("e", parse(text, samples_max=100).samples, NOW)
    return board


SERVICE = {"metadata": {"name": "s", "namespace": "ns"}, "spec": {"selector": {"app": "x"}}}


async def _selecting(group: str, plural: str, namespace: str, name: str) -> Any:
    found = SERVICE if (group, plural, namespace, name) == ("", "services", "ns", "s") else None
    return selecting_object(found, "Service", "v1")


APIS = MetricsApis(_board(), lambda: NOW, _selecting)


async def ask(
    group: str,
    resource: str,
    name: str = "",
    sub: str = "",
    namespace: str = "ns",
    version: str = "v1beta1",
    **query: str,
) -> dict[str, Any]:
    request = ApiRequest(
        user=User("u"),
        verb="get" if name else "list",
        group=f"{group}metrics.k8s.io",
        version=version,
        resource=resource,
        namespace=namespace,
        name=name,
        subresource=sub,
        query=query,
    )
    return (await APIS.answer(request)).object


async def test_pods_and_nodes() -> None:
    found = await ask("", "pods")
    assert found["kind"] == "PodMetricsList" and [item["metadata"]["name"] for item in found["items"]] == ["p", "q"]
    assert found["items"][0] == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {"name": "p", "namespace": "ns", "creationTimestamp": WHEN, "labels": {"app": "x"}},
        "timestamp": WHEN,
        "window": "15s",
        "containers": [{"name": "c", "usage": {"cpu": "200000000n", "memory": "1024Ki"}}],
    }
    assert await ask("", "pods", "p") == found["items"][0]
    assert len((await ask("", "pods", labelSelector="app=y"))["items"]) == 1
    assert len((await ask("", "pods", fieldSelector="metadata.name=q", namespace=""))["items"]) == 1
    assert len((await ask("", "pods", fieldSelector="metadata.namespace!=ns", namespace=""))["items"]) == 0
    assert len((await ask("", "pods", fieldSelector="metadata.name!=q,metadata.namespace==ns"))["items"]) == 1
    nodes = await ask("", "nodes", namespace="")
    assert [item["metadata"]["name"] for item in nodes["items"]] == ["n1"]
    assert nodes["items"][0]["usage"] == {"cpu": "1000000000n", "memory": "2048Ki"}
    assert (await ask("", "nodes", namespace="", labelSelector="zone=b"))["items"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("", "pods", "new"), 404, 'pods.metrics.k8s.io "ns/new" not found'),
        (("", "nodes", "silent"), 404, 'nodes.metrics.k8s.io "silent" not found'),
        (("", "unicorns"), 404, "the server could not find the requested resource"),
        (("custom.", "pods", "q", "none"), 404, "the server could not find the metric none for pods q"),
        (("custom.", "services", "gone", "queue"), 404, "the server could not find the metric queue for services gone"),
    ],
)
async def test_what_is_not_known(arguments: tuple[str, ...], code: int, text: str) -> None:
    with pytest.raises(StatusError) as caught:
        await ask(*arguments)
    assert (caught.value.code, caught.value.message) == (code, text)


async def test_bad_selectors_are_refused() -> None:
    for query in ({"labelSelector": "a in"}, {"fieldSelector": "spec.nodeName=x"}):
        with pytest.raises(StatusError) as caught:
            await ask("", "pods", **query)
        assert caught.value.code == 400


async def test_metrics_of_pods_and_of_what_selects_them() -> None:
    found = await ask("custom.", "pods", "*", "queue", version="v1beta2", labelSelector="app=x")
    assert found["items"] == [
        {
            "describedObject": {"kind": "Pod", "namespace": "ns", "name": "p", "apiVersion": "/v1"},
            "timestamp": WHEN,
            "value": "12500m",
            "metric": {"name": "queue", "selector": None},
        }
    ]
    older = await ask("custom.", "pods", "q", "queue")
    assert older["items"][0]["metricName"] == "queue" and older["items"][0]["value"] == "3"
    assert (await ask("custom.", "pods", "*", "queue", metricLabelSelector="kind=b"))["items"][0]["value"] == "3"
    service = await ask("custom.", "services", "s", "queue")
    assert service["items"][0]["describedObject"]["kind"] == "Service" and service["items"][0]["value"] == "12500m"
    whole = await ask("custom.", "metrics", "queue")
    assert whole["items"][0]["describedObject"]["kind"] == "Namespace" and whole["items"][0]["value"] == "15500m"
    for name in ("n1", "*"):
        node = (await ask("custom.", "nodes", name, "queue", namespace=""))["items"]
        assert [(one["describedObject"]["name"], one["value"]) for one in node] == [("n1", "15500m")]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ({"app": "x"}, ["p"]),
        ({"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]}, ["p"]),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]}, ["p", "q"]),
        ({"matchExpressions": [{"key": "app", "operator": "Unheard", "values": ["x"]}]}, None),
        ({"matchLabels": {"app": 1}}, None),
        ("app=x", None),
        ({}, None),
    ],
)
def test_which_pods_an_object_selects(selector: Any, names: list[str] | None) -> None:
    found = selecting_object({"metadata": {"name": "s"}, "spec": {"selector": selector}}, "Service", "v1")
    chosen = None if found is None else [name for name, _ in APIS.board.pods.selected("ns", found[1]) if name != "new"]
    assert chosen == names


@pytest.mark.parametrize(
    ("value", "shown"),
    [("1e300", "9223372036854775807m"), ("-1e300", "-9223372036854775807m"), ("0.0004", "0"), ("-3", "-3")],
)
async def test_values_are_thousandths_of_64_bits(value: str, shown: str) -> None:
    board = _board()
    board.series.put("e", parse(f'odd{{namespace="ns",pod="p"}} {value}', samples_max=9).samples, NOW)
    request = ApiRequest(
        user=User("u"),
        verb="get",
        group="custom.metrics.k8s.io",
        version="v1beta2",
        resource="pods",
        namespace="ns",
        name="p",
        subresource="odd",
    )
    answer = await MetricsApis(board, lambda: NOW, _selecting).answer(request)
    assert answer.object["items"][0]["value"] == shown


@pytest.mark.parametrize(("seconds", "text"), [(15.0, "15s"), (14.981, "14.981s"), (75, "1m15s"), (3661.5, "1h1m1.5s")])
async def test_windows_are_durations_as_go_prints_them(seconds: float, text: str) -> None:
    board = Board()
    board.nodes = {"n1": {}}
    for at in (NOW - seconds, NOW):
        told = f"node_cpu_usage_seconds_total {at - NOW + 9000}\nnode_memory_working_set_bytes 1\n"
        board.usage.put("e", ["n1"], parse(told, samples_max=9).samples, at)
    request = ApiRequest(
        user=User("u"), verb="get", group="metrics.k8s.io", version="v1beta1", resource="nodes", name="n1"
    )
    answer = await MetricsApis(board, lambda: NOW, _selecting).answer(request)
    assert answer.object["window"] == text


async def test_external_metrics_are_series() -> None:
    found = await ask("external.", "queue", labelSelector="kind=a")
    assert found["items"] == [
        {"metricName": "queue", "metricLabels": {"kind": "a", "pod": "p"}, "timestamp": WHEN, "value": "12500m"}
    ]


def test_discovery_names_every_metric() -> None:
    assert [one["name"] for one in APIS.resources("custom.metrics.k8s.io", "v1beta2") or ()] == [
        "namespaces/queue",
        "nodes/queue",
        "pods/queue",
    ]
    assert [one["name"] for one in APIS.resources("external.metrics.k8s.io", "v1beta1") or ()] == ["queue"]
    assert APIS.resources("metrics.k8s.io", "v1") is None
