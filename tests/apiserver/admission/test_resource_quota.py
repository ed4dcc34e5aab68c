"""Quotas: what is charged, what is refused, and that nobody gets past them at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from allot.apiserver.admission.attributes import Admission, Operation
from allot.apiserver.admission.chain import AdmissionChain
from allot.apiserver.admission.resource_quota import ResourceQuota
from allot.apiserver.errors import StatusError
from allot.apiserver.request import User
from allot.apiserver.resources import Resource

CLAIM_COUNT = "count/resourceclaims.resource.k8s.io"
PER_CLASS = "gpu.deviceclass.resource.k8s.io/devices"


def quota(hard: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard, **spec}}


def pod(name: str, requests: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": requests or {}}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container], **spec}}


def claim(name: str, *requests: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {"requests": list(requests)}}}


def exactly(count: int, mode: str = "ExactCount") -> dict[str, Any]:
    return {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": mode, "count": count}}


def used(world: Any) -> dict[str, str]:
    status: dict[str, Any] = world.objects["", "resourcequotas", "default", "q"]["status"]
    return dict(status["used"])


async def refused(awaited: Any) -> str:
    with pytest.raises(StatusError) as caught:
        await awaited
    assert caught.value.code == 403
    return caught.value.message


async def test_objects_are_counted(world: Any) -> None:
    world.put("", "resourcequotas", quota({"count/configmaps": "2", "configmaps": "3"}))
    for name in ("a", "b"):
        await world.create("", "configmaps", {"metadata": {"name": name, "namespace": "default"}})
    assert used(world) == {"configmaps": "2", "count/configmaps": "2"}
    message = await refused(world.create("", "configmaps", {"metadata": {"name": "c", "namespace": "default"}}))
    assert message == (
        'configmaps "c" is forbidden: exceeded quota: q, requested: count/configmaps=1, '
        "used: count/configmaps=2, limited: count/configmaps=2"
    )


async def test_concurrent_creates_never_exceed_a_quota(world: Any) -> None:
    world.put("", "resourcequotas", quota({"count/configmaps": "5"}))
    makes = [world.create("", "configmaps", {"metadata": {"name": f"c{n}", "namespace": "default"}}) for n in range(20)]
    results = await asyncio.gather(*makes, return_exceptions=True)
    assert sum(1 for one in results if isinstance(one, dict)) == 5
    assert len([key for key in world.objects if key[1] == "configmaps"]) == 5
    assert used(world) == {"count/configmaps": "5"}


async def test_two_servers_never_exceed_a_quota(world: Any) -> None:
    world.put(
        "",
        "resourcequotas",
        quota({"count/configmaps": "7"})
        | {"status": {"hard": {"count/configmaps": "7"}, "used": {"count/configmaps": "0"}}},
    )

    def now() -> str:
        return "2026-01-01T00:00:00Z"

    chains = [AdmissionChain([], [ResourceQuota(world, world, now, recalculate=False)], world) for _ in range(2)]

    async def make(number: int) -> None:
        world_chain = chains[number % 2]
        admission = Admission(
            user=User("u"), operation=Operation.CREATE, resource=_configmaps(), namespace="default",
            object_={"metadata": {"name": f"c{number}", "namespace": "default"}},
        )  # fmt: skip
        async with world_chain.judge(admission):
            world.put("", "configmaps", admission.object)

    results = await asyncio.gather(*(make(number) for number in range(20)), return_exceptions=True)
    assert sum(1 for one in results if one is None) == 7
    assert used(world) == {"count/configmaps": "7"}


def _configmaps() -> Any:
    return Resource(
        group="", version="v1", kind="ConfigMap", plural="configmaps", singular="configmap", namespaced=True,
        storage_version="v1",
    )  # fmt: skip


async def test_what_was_not_stored_is_given_back(world: Any) -> None:
    world.put("", "resourcequotas", quota({"count/configmaps": "5"}))

    await world.create("", "configmaps", {"metadata": {"name": "a", "namespace": "default"}})
    made = {"metadata": {"name": "b", "namespace": "default"}}
    admission = Admission(
        user=User("u"), operation=Operation.CREATE, resource=_configmaps(), namespace="default", object_=made
    )
    with pytest.raises(StatusError, match="there already"):
        async with world.chain.judge(admission):
            raise StatusError(409, "AlreadyExists", "there already")
    assert used(world) == {"count/configmaps": "1"}


async def test_what_was_deleted_can_be_made_again(world: Any) -> None:
    world.put("", "resourcequotas", quota({"count/configmaps": "1"}))
    await world.create("", "configmaps", {"metadata": {"name": "a", "namespace": "default"}})
    await world.delete("", "configmaps", "default", "a")
    await world.create("", "configmaps", {"metadata": {"name": "b", "namespace": "default"}})
    assert used(world) == {"count/configmaps": "1"}


async def test_a_dry_run_is_refused_but_not_charged(world: Any) -> None:
    world.put("", "resourcequotas", quota({"count/configmaps": "1"}))
    made = {"metadata": {"name": "a", "namespace": "default"}}
    await world.create("", "configmaps", made, dry_run=True)
    await world.create("", "configmaps", made)
    await refused(world.create("", "configmaps", {"metadata": {"name": "b", "namespace": "default"}}, dry_run=True))


async def test_pods_are_charged_what_they_ask_for(world: Any) -> None:
    world.put("", "resourcequotas", quota({"requests.cpu": "2", "pods": "10", "limits.memory": "1Gi"}))
    message = await refused(world.create("", "pods", pod("p", {"cpu": "1"})))
    assert message == 'pods "p" is forbidden: failed quota: q: must specify limits.memory for: c'
    fine = pod("p", {"cpu": "1500m"})
    fine["spec"]["containers"][0]["resources"]["limits"] = {"memory": "512Mi"}
    await world.create("", "pods", fine)
    assert used(world) == {"limits.memory": "512Mi", "pods": "1", "requests.cpu": "1500m"}
    fine["metadata"]["name"] = "p2"
    message = await refused(world.create("", "pods", fine))
    assert message.endswith(
        "exceeded quota: q, requested: requests.cpu=1500m, used: requests.cpu=1500m, limited: requests.cpu=2"
    )


async def test_finished_pods_are_not_charged(world: Any) -> None:
    world.put("", "pods", pod("done") | {"status": {"phase": "Succeeded"}})
    world.put("", "resourcequotas", quota({"pods": "1", "count/pods": "5"}))
    await world.create("", "pods", pod("p"))
    assert used(world) == {"count/pods": "2", "pods": "1"}


async def test_a_scoped_quota_only_counts_what_is_in_scope(world: Any) -> None:
    world.put("", "resourcequotas", quota({"pods": "0"}, scopes=["Terminating"]))
    await world.create("", "pods", pod("p"))
    message = await refused(world.create("", "pods", pod("p2", activeDeadlineSeconds=5)))
    assert "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0" in message


async def test_devices_are_charged_by_class(world: Any) -> None:
    world.put("", "resourcequotas", quota({PER_CLASS: "33", CLAIM_COUNT: "9"}))
    await world.create("resource.k8s.io", "resourceclaims", claim("a", exactly(1)))
    message = await refused(
        world.create("resource.k8s.io", "resourceclaims", claim("b", exactly(1), exactly(0, "All")))
    )
    assert message == (
        'resourceclaims.resource.k8s.io "b" is forbidden: exceeded quota: q, '
        f"requested: {PER_CLASS}=33, used: {PER_CLASS}=1, limited: {PER_CLASS}=33"
    )
    await world.create("resource.k8s.io", "resourceclaims", claim("c", exactly(0, "All")))
    assert used(world) == {CLAIM_COUNT: "2", PER_CLASS: "33"}


async def test_of_alternatives_the_largest_of_each_class_counts(world: Any) -> None:
    world.put("", "resourcequotas", quota({PER_CLASS: "10", "cpu.deviceclass.resource.k8s.io/devices": "10"}))
    alternatives = [
        {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
        {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 4},
        {"deviceClassName": "cpu", "allocationMode": "ExactCount", "count": 1},
    ]
    await world.create("resource.k8s.io", "resourceclaims", claim("a", {"name": "r", "firstAvailable": alternatives}))
    assert used(world) == {"cpu.deviceclass.resource.k8s.io/devices": "1", PER_CLASS: "4"}


async def test_claims_count_as_extended_resources_of_their_class(world: Any) -> None:
    world.put(
        "resource.k8s.io",
        "deviceclasses",
        {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}},
    )
    implicit = "requests.deviceclass.resource.kubernetes.io/gpu"
    world.put("", "resourcequotas", quota({"requests.example.com/gpu": "3", implicit: "9"}))
    await world.create("resource.k8s.io", "resourceclaims", claim("a", exactly(2)))
    await world.create("", "pods", pod("p", {"example.com/gpu": "1"}))
    assert used(world) == {"requests.example.com/gpu": "3", implicit: "2"}
    message = await refused(world.create("", "pods", pod("p2", {"example.com/gpu": "1"})))
    assert "requested: requests.example.com/gpu=1, used: requests.example.com/gpu=3" in message


async def test_a_claim_for_a_pods_extended_resources_is_not_charged_twice(world: Any) -> None:
    world.put(
        "resource.k8s.io",
        "deviceclasses",
        {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}},
    )
    world.put("", "resourcequotas", quota({"requests.example.com/gpu": "2", PER_CLASS: "5"}))
    made = pod("p", {"example.com/gpu": "2"})
    made["metadata"]["uid"] = "u"
    await world.create("", "pods", made)
    owned = claim("x", exactly(2))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    annotation = {"resource.kubernetes.io/extended-resource-claim": "true"}
    owned["metadata"] |= {"annotations": annotation, "ownerReferences": [owner]}
    await world.create("resource.k8s.io", "resourceclaims", owned)
    assert used(world) == {PER_CLASS: "2", "requests.example.com/gpu": "2"}


async def test_scoped_quotas_never_apply_to_claims(world: Any) -> None:
    world.put("", "resourcequotas", quota({PER_CLASS: "0"}, scopes=["BestEffort"]))
    await world.create("resource.k8s.io", "resourceclaims", claim("a", exactly(1)))


async def test_a_quota_without_matching_keys_leaves_claims_alone(world: Any) -> None:
    implicit = "requests.deviceclass.resource.kubernetes.io/gpu"
    world.put("", "resourcequotas", quota({implicit: "0"}))
    await world.create("resource.k8s.io", "resourceclaims", claim("a", exactly(1)))


async def test_services_are_charged_for_ports_when_they_change(world: Any) -> None:
    world.put("", "resourcequotas", quota({"services": "5", "services.nodeports": "2", "services.loadbalancers": "0"}))
    service = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"type": "ClusterIP", "ports": [{}, {}]}}
    await world.create("", "services", service)
    await world.update("", "services", {**service, "spec": {**service["spec"], "type": "NodePort"}})
    assert used(world) == {"services": "1", "services.loadbalancers": "0", "services.nodeports": "2"}
    message = await refused(
        world.update("", "services", {**service, "spec": {**service["spec"], "type": "LoadBalancer"}})
    )
    assert "requested: services.loadbalancers=1" in message


async def test_volume_claims_are_charged_by_class(world: Any) -> None:
    key = "fast.storageclass.storage.k8s.io/requests.storage"
    world.put("", "resourcequotas", quota({"requests.storage": "10Gi", key: "1Gi"}))
    spec = {"storageClassName": "fast", "resources": {"requests": {"storage": "2Gi"}}}
    made = {"metadata": {"name": "c", "namespace": "default"}, "spec": spec}
    message = await refused(world.create("", "persistentvolumeclaims", made))
    assert f"requested: {key}=2Gi, used: {key}=0, limited: {key}=1Gi" in message
    spec["storageClassName"] = "slow"
    await world.create("", "persistentvolumeclaims", made)
    assert used(world)["requests.storage"] == "2Gi"


async def test_a_changed_limit_counts_at_once(world: Any) -> None:
    world.put("", "resourcequotas", quota({"count/configmaps": "1"}))
    await world.create("", "configmaps", {"metadata": {"name": "a", "namespace": "default"}})
    status = world.objects["", "resourcequotas", "default", "q"]["status"]
    world.put("", "resourcequotas", quota({"count/configmaps": "2"}) | {"status": status})
    await world.create("", "configmaps", {"metadata": {"name": "b", "namespace": "default"}})
    assert used(world) == {"count/configmaps": "2"}
