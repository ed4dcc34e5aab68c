"""PodGroups: claims that their pods share, and a finalizer that keeps them as long as a pod can run."""

from __future__ import annotations

from pathlib import Path

from allot.controllers import podgroupprotection, resourceclaim
from allot.core.features import DEFAULT_GATES
from controllers.cluster import Cluster, Object, allocate, cluster, from_template, pod, template
from waiting import until

GATES = DEFAULT_GATES.changed(enable=("GenericWorkload", "DRAWorkloadResourceClaims"))
CONTROLLERS = {
    "resource-claim-controller": resourceclaim.make,
    "podgroup-protection-controller": podgroupprotection.make,
}


def group(name: str, *claims: Object) -> Object:
    """A PodGroup."""
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "finalizers": ["scheduling.k8s.io/podgroup-protection"]},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": list(claims)},
    }


async def recorded(made: Cluster, plural: str, name: str) -> dict[str, str]:
    """The claims in a status."""
    found = await made.get(plural, name)
    statuses = (found or {}).get("status", {}).get("resourceClaimStatuses", [])
    return {status["name"]: status["resourceClaimName"] for status in statuses}


async def test_the_pods_of_a_group_share_its_claim_until_the_group_goes(tmp_path: Path) -> None:
    async with cluster(tmp_path, GATES) as made, made.running(CONTROLLERS):
        await made.create("resourceclaimtemplates", template("t"))
        entry = from_template("switch", "t")
        for name in ("one", "two"):
            await made.create("pods", pod(name, claims=[entry, from_template("gpu", "t")], group="gang"))
        created = await made.create("podgroups", group("gang", entry))

        async def complete() -> dict[str, dict[str, str]] | None:
            found = {name: await recorded(made, "pods", name) for name in ("one", "two")}
            return found if all(len(names) == 2 for names in found.values()) else None

        of_group = await until(lambda: recorded(made, "podgroups", "gang"))
        of_pods = await until(complete)
        assert of_group["switch"].startswith("gang-switch-")
        assert [names["switch"] for names in of_pods.values()] == [of_group["switch"]] * 2
        assert of_pods["one"]["gpu"] != of_pods["two"]["gpu"]
        shared = await made.get("resourceclaims", of_group["switch"])
        assert shared is not None
        owner = shared["metadata"]["ownerReferences"][0]
        assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("scheduling.k8s.io/v1beta1", "PodGroup", "gang")

        await allocate(made, of_group["switch"], created, kind="podgroups")
        await made.set_phase("one", "Succeeded")
        await made.of("podgroups").delete("gang", "default")

        async def has_only_the_others() -> bool:
            return len(await made.items("resourceclaims")) == 2

        # The claim of the finished pod goes; that of the group stays, and so does the group, as long as a pod runs.
        await until(has_only_the_others)
        held = await made.get("resourceclaims", of_group["switch"])
        assert held is not None and held["status"]["reservedFor"][0]["name"] == "gang"
        assert await made.get("podgroups", "gang") is not None
        await made.set_phase("two", "Failed")

        async def is_released() -> bool:
            found = await made.get("resourceclaims", of_group["switch"])
            return await made.get("podgroups", "gang") is None and (found is None or not found.get("status"))

        await until(is_released)
