"""What pods use of their devices, and what autoscalers say: found where it is, and never a reason to fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from allot.client.api import Client
from allot.client.transport import Response
from allot.core.advice.snapshot import Snapshot, read_object
from allot.dashboard.autoscalers import STATUS_NAME, AutoscalerStatus
from allot.dashboard.measuring import Measuring
from allot.dashboard.model import Model
from dashboard import scene

CUSTOM = "/apis/custom.metrics.k8s.io"


class Answers:
    """A server that knows these paths."""

    def __init__(self, bodies: Mapping[str, Any], code: int = 404) -> None:
        self.bodies = dict(bodies)
        self.code = code
        self.asked: list[str] = []

    async def request(self, method: str, path: str, *_arguments: object, **_named: object) -> Response:
        assert method == "GET"
        self.asked.append(path)
        if path in self.bodies:
            return Response(200, {}, self.bodies[path])
        return Response(self.code, {}, {"kind": "Status", "code": self.code, "reason": "", "message": "no"})

    def stream(self) -> None:
        """For Transport."""

    async def close(self) -> None:
        """For Transport."""


def metric(name: str, **values: str) -> tuple[str, Any]:
    items = [{"describedObject": {"kind": "Pod", "name": pod}, "value": value} for pod, value in values.items()]
    return f"{CUSTOM}/v1beta2/namespaces/a/pods/*/{name}", {"kind": "MetricValueList", "items": items}


GROUP = (CUSTOM, {"preferredVersion": {"version": "v1beta2"}})


async def test_use_is_read_by_pod_and_parts_of_gpus_have_another_metric() -> None:
    answers = Answers(
        dict(
            [
                GROUP,
                metric("DCGM_FI_DEV_GPU_UTIL", whole="70", other="1"),
                metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", whole="500m", part="250m"),
                metric("DCGM_FI_DEV_FB_USED", whole="20000"),
            ]
        )
    )
    found = await Measuring(Client(answers)).read(["a/whole", "a/part", "a/unknown"])
    # `other` has no devices of its own: nobody asked for it.
    assert found == {"a/whole": (70, 20000), "a/part": (25, 0)}


async def test_a_server_without_these_metrics_is_left_alone_for_a_while() -> None:
    for code in (403, 404, 500):
        answers = Answers({}, code)
        measuring = Measuring(Client(answers))
        assert await measuring.read(["a/b"]) == {}
        asked = len(answers.asked)
        for _ in range(3):
            assert await measuring.read(["a/b"]) is None
        assert len(answers.asked) == asked
    # The API without the metric is asked again, as exporters come later.
    answers = Answers(dict([GROUP]))
    measuring = Measuring(Client(answers))
    assert [await measuring.read(["a/b"]) for _ in range(2)] == [{}, {}]


async def test_answers_that_are_none_are_left_out() -> None:
    path, body = metric("DCGM_FI_DEV_GPU_UTIL", good="5", bad="much")
    body["items"] += [None, {"value": "1"}, {"describedObject": {"name": "x"}}]
    found = await Measuring(Client(Answers(dict([GROUP, (path, body)])))).read(["a/good", "a/bad"])
    assert found == {"a/good": (5, 0)}
    assert await Measuring(Client(Answers(dict([GROUP, (path, [])])))).read(["a/good"]) == {}


def status(namespace: str, text: str) -> tuple[str, Any]:
    return f"/api/v1/namespaces/{namespace}/configmaps/{STATUS_NAME}", {"data": {"status": text}}


async def test_the_status_of_an_autoscaler_is_read_where_it_runs() -> None:
    pod = scene.pod("scaling", "cluster-autoscaler-7d9f", on="node-0", claims=())
    labelled = scene.pod("other", "x", on="node-0", claims=())
    labelled["metadata"]["labels"] = {"app.kubernetes.io/name": "aws-cluster-autoscaler"}
    model = Model(Snapshot(tuple(map(read_object, (scene.node(0), pod, labelled)))))
    answers = Answers(dict([status("scaling", "nodeGroups: [{name: a}]")]), 403)
    found = AutoscalerStatus(Client(answers), model)
    assert await found.read() == {"nodeGroups": [{"name": "a"}]}
    # From then on it is asked for there first.
    answers.asked.clear()
    await found.read()
    assert answers.asked == [f"/api/v1/namespaces/scaling/configmaps/{STATUS_NAME}"]
    answers.bodies = dict([status("kube-system", "nodeGroups: []"), status("scaling", "{")])
    assert await found.read() == {"nodeGroups": []}
    answers.bodies = {}
    assert await found.read() is None
    assert not any("/default/" in path for path in answers.asked)


@pytest.mark.parametrize("body", [{}, {"preferredVersion": None}, "ok", None])
async def test_a_server_that_answers_something_else_measures_nothing(body: Any) -> None:
    measuring = Measuring(Client(Answers({CUSTOM: body})))
    assert await measuring.read(["a/whole"]) == {}
    # And is not asked again at once.
    assert await measuring.read(["a/whole"]) is None
