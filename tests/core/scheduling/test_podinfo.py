"""What a pod asks for, and which pods are equal."""

from __future__ import annotations

from typing import Any

import msgspec

from allot.core.model import core_v1
from allot.core.model.codec import decode
from allot.core.quantity import Quantity
from allot.core.scheduling.podinfo import PodInfo, Profile, Profiles

from .cluster_world import pod


def amounts(spec: dict[str, Any]) -> tuple[int, int]:
    body = {"metadata": {"name": "p", "namespace": "ns"}, "spec": spec}
    profile = Profile(decode(body, core_v1.Pod).object, b"")
    return profile.cpu, profile.memory


def container(cpu: str, **more: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


def test_containers_add_up() -> None:
    assert amounts({"containers": [container("100m"), container("1500m")]})[0] == 1600


def test_the_largest_init_container_counts_if_it_is_more() -> None:
    spec = {"containers": [container("1")], "initContainers": [container("3"), container("2")]}
    assert amounts(spec)[0] == 3000


def test_sidecars_run_beside_everything_that_starts_after_them() -> None:
    sidecar = container("500m", restartPolicy="Always")
    assert amounts({"containers": [container("1")], "initContainers": [sidecar]})[0] == 1500
    spec = {"containers": [container("1")], "initContainers": [sidecar, container("2")]}
    assert amounts(spec)[0] == 2500
    spec = {"containers": [container("1")], "initContainers": [container("2"), sidecar]}
    assert amounts(spec)[0] == 2000


def test_overhead_is_added_and_requests_of_the_pod_replace_those_of_its_containers() -> None:
    spec = {"containers": [container("1")], "overhead": {"cpu": "250m", "memory": "1Mi"}}
    assert amounts(spec) == (1250, 2**20)
    spec = {"containers": [container("1")], "resources": {"requests": {"cpu": "3"}}}
    assert amounts(spec)[0] == 3000


def test_amounts_are_rounded_up_once_at_the_end() -> None:
    assert amounts({"containers": [container("1100u"), container("1100u")]})[0] == 3


def test_equal_pods_share_a_profile() -> None:
    profiles = Profiles()
    first = profiles.of(pod("a", cpu="1", labels={"app": "x"}))
    assert profiles.of(pod("b", cpu="1", labels={"app": "x"}, on="n1")) is first
    # Claims are another matter.
    claims = [{"name": "r", "resourceClaimName": "c"}]
    assert profiles.of(pod("b", cpu="1", labels={"app": "x"}, resourceClaims=claims)) is first
    assert profiles.made == 1
    for other in (
        pod("b", cpu="2", labels={"app": "x"}),
        pod("b", cpu="1", labels={"app": "y"}),
        pod("b", cpu="1", labels={"app": "x"}, namespace="other"),
        pod("b", cpu="1", labels={"app": "x"}, nodeSelector={"a": "b"}),
        pod("b", cpu="1", labels={"app": "x"}, tolerations=[{"operator": "Exists"}]),
        pod("b", cpu="1", labels={"app": "x"}, ports=[{"containerPort": 1, "hostPort": 2}]),
        pod("b", cpu="1", labels={"app": "x"}, overhead={"cpu": "1"}),
    ):
        assert profiles.of(other) is not first


def test_volumes_tell_pods_apart_only_if_they_matter_for_the_choice_of_a_node() -> None:
    def with_volume(name: str, **source: Any) -> core_v1.Pod:
        return pod(name, volumes=[{"name": f"kube-api-access-{name}", **source}])

    profiles = Profiles()
    # As the API server gives it to every pod, with a random name.
    token = {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    assert profiles.of(with_volume("a", **token)) is profiles.of(with_volume("b", **token)) is profiles.of(pod("c"))
    for source in (
        {"persistentVolumeClaim": {"claimName": "c"}},
        {"ephemeral": {}},
        {"image": {"reference": "x"}},
        {"gcePersistentDisk": {"pdName": "d"}},
        {"iscsi": {"iqn": "i"}},
        {"awsElasticBlockStore": {"volumeID": "v"}},
        {"rbd": {"image": "i"}},
    ):
        assert profiles.of(with_volume("a", **source)) is not profiles.of(pod("c")), source


def test_devices_that_stand_for_node_resources_count_as_requests() -> None:
    status = {
        "resourceClaimName": "c",
        "containers": ["a", "b"],
        "mapping": [{"name": "cpu", "quantity": "2"}, {"name": "hugepages-2Mi", "quantity": "4Mi"}],
        "overhead": [{"name": "memory", "perPod": "10", "perContainer": "3"}],
    }
    asked = pod(cpu="1", memory="100")
    extra = decode(status, core_v1.NodeAllocatableResourceClaimStatus).object
    info = PodInfo(asked, Profile(asked, b""), "n1", (extra,))
    assert (info.cpu, info.memory, info.nonzero_cpu, dict(info.scalars)) == (
        3000,
        116,
        3000,
        {"hugepages-2Mi": 4 * 2**20},
    )


def test_what_a_pod_itself_requests_covers_its_devices() -> None:
    status = {
        "resourceClaimName": "c",
        "mapping": [{"name": "cpu", "quantity": "2"}, {"name": "memory", "quantity": "5"}],
    }
    whole = core_v1.ResourceRequirements(requests={"cpu": Quantity.parse("3")})
    plain = pod(cpu="1", memory="100")
    asked = msgspec.structs.replace(plain, spec=msgspec.structs.replace(plain.spec, resources=whole))
    extra = decode(status, core_v1.NodeAllocatableResourceClaimStatus).object
    info = PodInfo(asked, Profile(asked, b""), "n1", (extra,))
    assert (info.cpu, info.memory) == (3000, 105)
