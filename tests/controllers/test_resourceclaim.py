"""The resourceclaim controller beside a real API server, with the rights that Kubernetes gives it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from allot.controllers import resourceclaim
from controllers.cluster import (
    Cluster,
    allocate,
    by_name,
    claim,
    cluster,
    from_template,
    pod,
    template,
)
from waiting import until

CONTROLLER = {"resource-claim-controller": resourceclaim.make}


async def recorded(cluster: Cluster, name: str) -> dict[str, str]:
    """The claims in a pod's status."""
    found = await cluster.get("pods", name)
    assert found is not None
    statuses = found["status"].get("resourceClaimStatuses", [])
    return {status["name"]: status["resourceClaimName"] for status in statuses}


async def test_a_pod_gets_its_claims_and_gives_them_back_when_it_ends(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made, made.running(CONTROLLER):
        labels, annotations = {"team": "a"}, {"note": "x"}
        await made.create("resourceclaimtemplates", template("t", labels=labels, annotations=annotations))
        created = await made.create("pods", pod("train", claims=[from_template("gpu", "t"), from_template("nic", "t")]))
        names = await until(lambda: recorded(made, "train"))
        assert sorted(names) == ["gpu", "nic"]
        assert names["gpu"].startswith("train-gpu-") and len(names["gpu"]) == len("train-gpu-") + 5
        found = await made.get("resourceclaims", names["gpu"])
        assert found is not None
        assert found["metadata"]["generateName"] == "train-gpu-"
        assert found["metadata"]["labels"] == labels
        assert found["metadata"]["annotations"] == {**annotations, "resource.kubernetes.io/pod-claim-name": "gpu"}
        assert found["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "train",
                "uid": created["metadata"]["uid"],
                "controller": True,
            }
        ]
        assert found["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu"
        entries = (await made.get("pods", "train"))["metadata"]["managedFields"]  # type: ignore[index]
        owned = [entry for entry in entries if entry["manager"] == "ResourceClaimController"]
        assert [(entry["operation"], entry["subresource"]) for entry in owned] == [("Apply", "status")]

        await allocate(made, names["gpu"], created)
        await made.set_phase("train", "Succeeded")

        async def is_tidy() -> bool:
            return not await made.items("resourceclaims")

        await until(is_tidy)
        assert await recorded(made, "train") == names
        text = made.metrics()
        assert (
            'dynamic_resource_allocation_resourceclaim_creates_total{admin_access="false",owner_api_group="",'
            'owner_api_kind="Pod",status="success"} 2.0' in text
        )
        assert 'workqueue_adds_total{name="resource_claim"}' in text


async def test_a_template_that_comes_late_is_told_and_then_used(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made, made.running(CONTROLLER):
        await made.create("pods", pod("early", claims=[from_template("gpu", "t")]))
        notes = await until(lambda: made.events("FailedResourceClaimCreation"))
        assert notes == [
            'PodResourceClaim gpu: resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found'
        ]
        await made.create("resourceclaimtemplates", template("t"))
        assert await until(lambda: recorded(made, "early"))


async def test_a_shared_claim_is_released_with_its_last_pod(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made, made.running(CONTROLLER):
        await made.create("resourceclaims", claim("shared"))
        first = await made.create("pods", pod("first", claims=[by_name("gpu", "shared")]))
        second = await made.create("pods", pod("second", claims=[by_name("gpu", "shared")], node="node-1"))
        await allocate(made, "shared", first)

        async def consumers() -> list[str]:
            found = await made.get("resourceclaims", "shared")
            assert found is not None
            return [consumer["name"] for consumer in found["status"].get("reservedFor", [])]

        # The second has a node already: nobody else will reserve the claim for it.
        await until(lambda: _equals(consumers, ["first", "second"]))
        await made.of("pods").delete("first", "default", grace_period_seconds=0)
        await until(lambda: _equals(consumers, ["second"]))
        await made.set_phase("second", "Failed")

        async def is_free() -> bool:
            found = await made.get("resourceclaims", "shared")
            assert found is not None
            return not found.get("status") and "finalizers" not in found["metadata"]

        await until(is_free)
        assert second["metadata"]["uid"]


async def _equals(look: Callable[[], Awaitable[object]], expected: object) -> bool:
    return bool(await look() == expected)
