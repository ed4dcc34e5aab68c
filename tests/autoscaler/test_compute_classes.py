"""ComputeClasses on a real API server: pods tolerate their nodes, priorities are bought in order, statuses say what is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from allot.autoscaler.options import AutoscalerOptions
from allot.autoscaler.simulated_cloud import CloudPool
from allot.client.api import PatchType
from allot.client.errors import ApiError
from allot.controlplane.clients import client_of
from allot.controlplane.users import AUTOSCALER
from allot.core.model.compute_classes import CLASS_LABEL, DEFAULT_LABEL, GROUP, PLURAL, VERSION
from allot.installation import definitions as installation
from autoscaler import cloud_world
from autoscaler.cloud_world import QUICK, World, gpu_cluster, pod, pools_of
from controllers.cluster import Cluster
from waiting import until

pytestmark = pytest.mark.slow
A100 = "a100=a2-ultragpu-1g,max=1,price=5,computeClass=c"
L4 = "l4=g2-standard-4,max=2,price=1,computeClass=c"
SELECTS = {"nodeSelector": {CLASS_LABEL: "c"}}


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A server with ComputeClasses."""
    async with gpu_cluster(tmp_path) as found:
        await define(found)
        yield found


async def define(made: Cluster) -> None:
    """What comes with allot for ComputeClasses and the autoscaler; the rest would only take time."""
    plurals = {"CustomResourceDefinition": "customresourcedefinitions"}
    for object_ in installation.objects():
        name, namespace = object_["metadata"]["name"], object_["metadata"].get("namespace", "")
        if name in (f"{PLURAL}.{GROUP}", AUTOSCALER.name):
            group, _, version = object_["apiVersion"].partition("/")
            plural = plurals.get(object_["kind"], f"{object_['kind'].lower()}s")
            await made.client.resource(group, version, plural, namespaced=bool(namespace)).create(object_, namespace)
    await until(lambda: _is_served(made), "the kind is served")


async def _is_served(made: Cluster) -> bool:
    return (await made.client.discovery(refresh=True)).find_name(f"{PLURAL}.{GROUP}") is not None


def world(
    made: Cluster, pools: list[CloudPool], folder: Path, options: AutoscalerOptions = QUICK
) -> AbstractAsyncContextManager[World]:
    """An autoscaler with the rights that come with the definitions, and no others."""
    return cloud_world.world(made, pools, folder, options, client=client_of(made.server, AUTOSCALER))


async def put_class(made: Cluster, *priorities: dict[str, Any], name: str = "c", **spec: Any) -> None:
    """A class."""
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ComputeClass",
        "metadata": {"name": name},
        "spec": {"priorities": list(priorities), **spec},
    }
    await made.client.resource(GROUP, VERSION, PLURAL, namespaced=False).create(body)


async def status(made: Cluster, name: str = "c") -> dict[str, Any]:
    """What is said of a class."""
    found = await made.client.resource(GROUP, VERSION, PLURAL, namespaced=False).get(name)
    return dict(found.get("status") or {})


async def test_priorities_are_bought_in_order(made: Cluster, tmp_path: Path) -> None:
    """The first priority has one node; the second pod gets the second one, and the third waits and is told of both."""
    await put_class(made, {"nodepools": ["a100"]}, {"nodepools": ["l4"]})
    async with world(
        made, pools_of(A100, L4.replace("max=2", "max=1"), "free=g2-standard-4,price=0"), tmp_path
    ) as found:
        for name in "xyz":
            await pod(made, name, **SELECTS)
        await until(lambda: _are(found.nodes(), ["a100", "l4"]), "a node of each")
        (note,) = await until(lambda: made.events("NotTriggerScaleUp"), "an event")
        assert note == (
            "pod didn't trigger scale-up: ComputeClass c: priority 1 (a100): max node group size reached; "
            "priority 2 (l4): max node group size reached"
        )
        conditions = (await until(lambda: status(made)))["conditions"]
        assert [(each["type"], each["status"], each["message"]) for each in conditions] == [
            ("Health", "True", "Crd is healthy.")
        ]


async def test_a_priority_that_is_out_of_stock_is_passed_over(made: Cluster, tmp_path: Path) -> None:
    """The status of the class says until when."""
    await put_class(made, {"nodepools": ["a100"]}, {"nodepools": ["l4"]})
    pools = [replace(pools_of(A100)[0], stock=0), *pools_of(L4)]
    async with world(made, pools, tmp_path) as found:
        await pod(made, "x", **SELECTS)
        await until(lambda: _are(found.nodes(), ["l4"]), "a node of the second")
        suspended = await until(lambda: _condition(made, 0, "ProvisioningSuspended"), "the status says so")
        assert suspended["reason"] == "OUT_OF_STOCK"
        assert "Backing off the priority until" in suspended["message"]


async def test_a_class_that_names_no_pool_is_told_which_there_are(made: Cluster, tmp_path: Path) -> None:
    """In its status."""
    await put_class(made, {"nodepools": ["a10"]}, {"machineType": "g2-standard-5"})
    async with world(made, pools_of(A100), tmp_path):
        found = await until(lambda: status(made), "a status")
        said = {each["type"]: each["message"] for each in found["conditions"]}
        assert said["Health"] == "Crd is not healthy."
        assert said["CrdMisconfigured"].startswith(
            "Nodepool a10 specified by name has autoscaling disabled or doesn't exist in the cluster. "
            'Did you mean "a100"?'
        )
        assert "has nodes of g2-standard-5" in said["RuleMisconfigured"]


async def test_pods_move_to_the_better_priority_when_it_is_there_again(made: Cluster, tmp_path: Path) -> None:
    """Bought first, then the pod is evicted, and the old node goes."""
    migration = {"activeMigration": {"optimizeRulePriority": True}}
    await put_class(made, {"nodepools": ["a100"]}, {"nodepools": ["l4"]}, **migration)
    options = replace(QUICK, backoff_initial_s=0.5, scale_down_unneeded_time_s=60.0)
    pools = [replace(pools_of(A100)[0], stock=0), *pools_of(L4)]
    async with world(made, pools, tmp_path, options) as found:
        await pod(made, "x", terminationGracePeriodSeconds=0, **SELECTS)
        (node,) = await until(lambda: made.items("nodes"), "a node")
        assert node["metadata"]["labels"][CLASS_LABEL] == "c"
        await bind(made, "x", node["metadata"]["name"])
        found.cloud.put(*pools_of(A100))
        await until(lambda: _has_gone(made, "x"), "the pod is evicted")
        await until(lambda: _are(found.nodes(), ["a100"]), "only the better node")


async def bind(made: Cluster, name: str, node: str) -> None:
    """What the scheduler does."""
    claim = await made.get("resourceclaims", name)
    assert claim is not None
    (slice_,) = await until(lambda: made.items("resourceslices"), "its devices")
    spec = slice_["spec"]
    result = {"request": "gpu", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": "gpu-0"}
    uid = (await made.of("pods").get(name, "default"))["metadata"]["uid"]
    body = {
        **claim,
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
        },
    }
    await made.of("resourceclaims").update(body, "default", subresource="status")
    target = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": node},
    }
    await made.of("pods").create(target, "default", name=name, subresource="binding")


async def _has_gone(made: Cluster, name: str) -> bool:
    return await made.get("pods", name) is None


async def _are(asked: Any, expected: list[str]) -> bool:
    return sorted(await asked) == expected


async def _condition(made: Cluster, index: int, type_: str) -> dict[str, Any]:
    statuses = (await status(made)).get("priorityStatuses") or [{}] * (index + 1)
    return next((each for each in statuses[index].get("conditions", ()) if each["type"] == type_), {})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"priorities": [{"nodepools": ["a"], "spot": True}]}, "Nodepool field cannot be set along with other fields"),
    ({"priorities": [{"machineFamily": "n2", "machineType": "n2-standard-4"}]}, "cannot be set together"),
    ({"priorities": [{}]}, "should have at least 1 properties"),
    ({"whenUnsatisfiable": "Never"}, 'supported values: "DoNotScaleUp", "ScaleUpAnyway"'),
    ({"autoscalingPolicy": {"consolidationDelayMinutes": 0}}, "greater than or equal to 1"),
    ({"autoscalingPolicy": {"consolidationDelayMinutes": 1441}}, "less than or equal to 1440"),
    ({"priorities": [{"gpu": {"type": "x", "count": -1}}]}, "greater than or equal to 0"),
    (
        {"priorities": [{"machineFamily": "n2", "reservations": {"affinity": "Specific"}}]},
        "At least 1 specific reservation required",
    ),
    ({"priorities": [{"reservations": {"affinity": "None"}}]}, "only with machine type or machine family"),
    ({"nodePoolConfig": {"nodeLabels": {"cloud.google.com/x": "y"}}}, "cannot contain reserved"),
    ({"nodePoolConfig": {"nodeLabels": {"x": "a b"}}}, "should match"),
    ({"nodePoolConfig": {"nodeLabels": {"-x": "a"}}}, "must begin with a letter or number"),
    ({"nodePoolConfig": {"taints": [{"key": "a b", "effect": "NoSchedule"}]}}, "should match"),
    ({"nodePoolConfig": {"taints": [{"key": "k8s.io/x", "effect": "NoSchedule"}]}}, "cannot contain reserved"),
    ({"priorities": [{"machineFamily": "n2", "priorityScore": 1}] * 4}, "Not more than 3 priorities"),
]


async def test_what_gke_refuses_is_refused(made: Cluster) -> None:
    """With the field."""
    for spec, said in REFUSED:
        with pytest.raises(ApiError, match=said):
            await put_class(made, *spec.pop("priorities", ()), **spec)


async def test_a_class_has_the_defaults_of_gke(made: Cluster) -> None:
    """And names that GKE keeps for itself are refused."""
    await put_class(made, {"gpu": {"type": "nvidia-l4", "count": 1}})
    found = await made.client.resource(GROUP, VERSION, PLURAL, namespaced=False).get("c")
    assert found["spec"]["whenUnsatisfiable"] == "DoNotScaleUp"
    assert found["spec"]["nodePoolAutoCreation"] == {"enabled": False}
    assert found["spec"]["priorities"][0]["gpu"]["driverVersion"] == "default"
    with pytest.raises(ApiError, match="cannot begin with gke or autopilot"):
        await put_class(made, name="gke-mine")


async def test_new_pods_tolerate_the_nodes_of_their_class(made: Cluster) -> None:
    """Also if it is their namespace that selects it; contradictions are refused."""
    await made.of("namespaces").patch("default", {"metadata": {"labels": {DEFAULT_LABEL: "c"}}}, PatchType.MERGE)
    await pod(made, "x", gpu=False)
    found = (await made.of("pods").get("x", "default"))["spec"]
    assert found["nodeSelector"] == {CLASS_LABEL: "c"}
    wanted = {"key": CLASS_LABEL, "operator": "Equal", "value": "c", "effect": "NoSchedule"}
    assert wanted in found["tolerations"]
    with pytest.raises(ApiError, match=r"the class decides that, by priorities\.machineType"):
        await pod(made, "y", gpu=False, nodeSelector={CLASS_LABEL: "c", "node.kubernetes.io/instance-type": "n2"})


async def test_classes_that_are_defined_later_are_read(tmp_path: Path) -> None:
    """The autoscaler was there first."""
    async with gpu_cluster(tmp_path) as found, cloud_world.world(found, pools_of(A100, L4), tmp_path) as made:
        await until(lambda: made.autoscaler.rounds)
        assert not made.autoscaler.compute_classes.is_served
        await define(found)
        await put_class(found, {"nodepools": ["a100"]})
        await until(lambda: status(found), "a status")
