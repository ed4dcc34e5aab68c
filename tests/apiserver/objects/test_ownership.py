"""Who manages which fields of objects that are written in several versions, by their subresources, and to no effect."""

from __future__ import annotations

from typing import Any

from apiserver.live import LiveServer

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
AUTOSCALERS = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
MAPS = "/api/v1/namespaces/default/configmaps"
APPLY = "apply-patch+yaml"


def entries(object_: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    managed = object_["metadata"]["managedFields"]
    return {(entry["manager"], entry["operation"]): entry for entry in managed}


def deployment() -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    return {"metadata": {"name": "d"}, "spec": spec}


async def test_what_is_changed_in_one_version_is_lost_by_its_manager_in_another(server: LiveServer) -> None:
    metric = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        "maxReplicas": 3,
        "metrics": [{"type": "Resource", "resource": metric}],
    }
    path = AUTOSCALERS.format("v2")
    created = await server.post(f"{path}?fieldManager=one", {"metadata": {"name": "h"}, "spec": spec})
    assert "f:metrics" in entries(created.json)["one", "Update"]["fieldsV1"]["f:spec"]
    older = f"{AUTOSCALERS.format('v1')}/h?fieldManager=two"
    assert (await server.patch(older, {"spec": {"targetCPUUtilizationPercentage": 80}})).status == 200
    found = entries((await server.get(f"{path}/h")).json)
    assert "f:metrics" not in found["one", "Update"]["fieldsV1"]["f:spec"]
    assert "f:maxReplicas" in found["one", "Update"]["fieldsV1"]["f:spec"]
    assert found["two", "Update"]["apiVersion"] == "autoscaling/v1"
    assert found["two", "Update"]["fieldsV1"] == {"f:spec": {"f:targetCPUUtilizationPercentage": {}}}


async def test_a_scale_can_be_applied_and_its_manager_owns_the_replicas(server: LiveServer) -> None:
    await server.post(f"{DEPLOYMENTS}?fieldManager=one", deployment())
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 5}}
    path = f"{DEPLOYMENTS}/d/scale?fieldManager=two"
    refused = await server.patch(path, scale, APPLY)
    assert refused.status == 409
    assert (
        refused.json["message"]
        == 'Apply failed with 1 conflict: conflict with "one" using autoscaling/v1: .spec.replicas'
    )
    applied = await server.patch(f"{path}&force=true", scale, APPLY)
    assert (applied.status, applied.json["kind"], applied.json["spec"]) == (200, "Scale", {"replicas": 5})
    stored = (await server.get(f"{DEPLOYMENTS}/d")).json
    assert stored["spec"]["replicas"] == 5
    found = entries(stored)
    assert "f:replicas" not in found["one", "Update"]["fieldsV1"]["f:spec"]
    assert "f:template" in found["one", "Update"]["fieldsV1"]["f:spec"]
    mine = found["two", "Apply"]
    assert (mine["apiVersion"], mine["subresource"]) == ("apps/v1", "scale")
    assert mine["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    again = await server.patch(f"{DEPLOYMENTS}/d/scale?fieldManager=two", scale, APPLY)
    assert again.status == 200
    assert (await server.get(f"{DEPLOYMENTS}/d")).json["metadata"]["resourceVersion"] == stored["metadata"][
        "resourceVersion"
    ]


async def test_a_scale_that_cannot_be_applied_is_refused(server: LiveServer) -> None:
    await server.post(DEPLOYMENTS, deployment())
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 5}}
    assert (await server.patch(f"{DEPLOYMENTS}/d/scale", scale, APPLY)).status == 422
    path = f"{DEPLOYMENTS}/d/scale?fieldManager=two&force=true"
    assert (await server.patch(path, {**scale, "spec": {"replicas": -1}}, APPLY)).status == 422
    assert (await server.patch(path, {**scale, "kind": "Deployment"}, APPLY)).status == 400
    assert (await server.patch(path, {**scale, "metadata": {"name": "e"}}, APPLY)).status == 400
    assert (await server.patch(path.replace("/d/", "/e/"), {**scale, "metadata": {"name": "e"}}, APPLY)).status == 404


async def test_a_body_that_is_wrong_is_told_before_the_object_is_missed(server: LiveServer) -> None:
    answer = await server.put(f"{MAPS}/missing", {"metadata": {"name": "missing"}, "data": {"k": 1}})
    assert (answer.status, "cannot be handled as a ConfigMap" in answer.json["message"]) == (400, True)
    assert (await server.put(f"{MAPS}/missing", {"metadata": {"name": "missing"}})).status == 404


async def test_an_update_that_repeats_what_is_there_is_still_checked_where_it_differs(server: LiveServer) -> None:
    created = (await server.post(MAPS, {"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}})).json
    wrong = {**created, "metadata": {**created["metadata"], "labels": {"x": 1}}}
    assert (await server.put(f"{MAPS}/a", wrong)).status == 400
    wrong = {**created, "metadata": {**created["metadata"], "labels": {"not a key": "y"}}}
    assert (await server.put(f"{MAPS}/a", wrong)).status == 422
    odd = {**created, "unknown": 1}
    answer = await server.put(f"{MAPS}/a", odd)
    assert (answer.status, answer.json["metadata"]["resourceVersion"]) == (200, created["metadata"]["resourceVersion"])
