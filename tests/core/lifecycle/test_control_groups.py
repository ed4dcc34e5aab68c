"""What the control groups of pods are called, and what is written to them."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.lifecycle.control_groups import (
    UNLIMITED,
    BadGroupName,
    GroupValues,
    cgroupfs_path,
    class_values,
    new_files,
    old_files,
    oom_score,
    pod_group_part,
    pod_values,
    quota_of,
    root_name,
    shares_of,
    spelled_size,
    systemd_path,
    systemd_slice,
    weight_of,
)
from allot.core.lifecycle.pod_amounts import container_limits, pod_limits, pod_requests
from allot.core.model.pods_v1 import RunnablePod, decode_runnable

Object = dict[str, Any]
GI, MI = 2**30, 2**20


def amounts(requests: Object | None = None, limits: Object | None = None) -> Object:
    return {**({"requests": requests} if requests else {}), **({"limits": limits} if limits else {})}


SMALL = amounts({"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "2Gi"})


def pod(*resources: Object, qos: str = "Burstable", claims: tuple[Object, ...] = (), **spec: Any) -> RunnablePod:
    containers = [{"name": f"c{number}", "resources": each} for number, each in enumerate(resources, 1)]
    return decode_runnable(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u-1"},
            "spec": {"containers": containers, **spec},
            "status": {"qosClass": qos, "nodeAllocatableResourceClaimStatuses": list(claims)},
        }
    )


def claim(*containers: str, mapping: Object | None = None, per_pod: str = "", per_container: str = "") -> Object:
    """Of memory and processors alike: 1Gi and 1000m are the same number of steps."""
    overhead = [
        {"name": "memory", **({"perPod": per_pod} if per_pod else {}), "perContainer": per_container or "0"},
    ]
    mapped = [{"name": name, "quantity": each} for name, each in (mapping or {}).items()]
    return {
        "resourceClaimName": "c",
        "containers": list(containers),
        "mapping": mapped,
        "overhead": overhead if per_pod or per_container else [],
    }


def test_names_of_both_drivers() -> None:
    name = ("kubepods", "burstable", pod_group_part("12-ab"))
    assert cgroupfs_path(name) == "/kubepods/burstable/pod12-ab"
    assert systemd_slice(name) == "kubepods-burstable-pod12_ab.slice"
    assert systemd_path(name) == "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_ab.slice"
    assert root_name("/") == ()
    assert root_name("/machines/node-1/") == ("machines", "node-1")
    assert root_name("a-b_c.slice") == ("a", "b-c")


@pytest.mark.parametrize("uid", ["", "..", "../..", "a/b", "a_b", "a\n", "-a", "a" * 200, "a.slice", "ä"])
def test_a_uid_that_would_lead_elsewhere_names_no_group(uid: str) -> None:
    with pytest.raises(BadGroupName, match=r"metadata\.uid"):
        pod_group_part(uid)


@pytest.mark.parametrize("path", ["/a/../b", "/a b", "/./a", "/a\0b", "/a_b"])
def test_a_root_that_would_lead_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(BadGroupName, match="expected a path"):
        root_name(path)


def test_units() -> None:
    assert [shares_of(each) for each in (0, 1, 100, 1000, 10**9)] == [2, 2, 102, 1024, 262_144]
    assert [weight_of(each) for each in (2, 1024, 262_144)] == [1, 39, 10_000]
    assert [quota_of(each) for each in (1, 10, 1500)] == [1000, 1000, 150_000]
    assert [spelled_size(each) for each in (2 * MI, GI, 64 * 1024)] == ["2MB", "1GB", "64KB"]


def test_a_pod_has_what_its_containers_have_together() -> None:
    found = pod_values(pod(SMALL, SMALL, overhead={"cpu": "250m", "memory": "16Mi"}))
    assert found.cpu_shares == shares_of(2250)
    assert found.cpu_quota_us == quota_of(4250)
    assert found.memory_bytes == 4 * GI + 16 * MI


def test_init_containers_count_if_they_need_more_and_sidecars_always() -> None:
    sidecar = {"name": "side", "restartPolicy": "Always", "resources": amounts({"cpu": "500m"}, {"cpu": "500m"})}
    big = {"name": "big", "resources": amounts({"cpu": "3"}, {"cpu": "4"})}
    found = pod(SMALL, initContainers=[sidecar, big])
    assert str(pod_requests(found)["cpu"]) == "3500m"
    assert str(pod_limits(found)["cpu"]) == "4500m"
    assert pod_values(found).memory_bytes == UNLIMITED


def test_a_pod_is_limited_only_if_all_its_containers_are_or_it_is_itself() -> None:
    free = amounts({"cpu": "1"})
    found = pod_values(pod(SMALL, free))
    assert (found.cpu_quota_us, found.memory_bytes) == (UNLIMITED, UNLIMITED)
    own = amounts({"cpu": "2", "memory": "2Gi"}, {"cpu": "4", "memory": "4Gi"})
    found = pod_values(pod(free, free, resources=own))
    assert (found.cpu_shares, found.cpu_quota_us, found.memory_bytes) == (2048, 400_000, 4 * GI)
    best = pod_values(pod({}, qos="BestEffort"), pids_max=100)
    assert best == GroupValues(cpu_shares=2, pids=100, huge_pages={})


def test_devices_that_stand_for_node_resources_count_once_in_the_pod_and_in_full_in_each_container() -> None:
    mapped = claim("c1", "c2", mapping={"cpu": "1", "memory": "1000Mi"}, per_pod="100Mi", per_container="50Mi")
    found = pod(SMALL, SMALL, claims=(mapped,))
    assert pod_values(found).cpu_shares == shares_of(3000)
    assert pod_values(found).cpu_quota_us == quota_of(5000)
    assert pod_values(found).memory_bytes == 4 * GI + 1200 * MI
    limits = container_limits(found, found.spec.containers[0])
    assert limits["cpu"].milli_value() == 3000
    assert limits["memory"].value() == 2 * GI + 1150 * MI
    # Nobody refers to it: it costs what it costs per pod.
    assert (
        pod_values(pod(SMALL, claims=(claim(per_pod="100Mi", per_container="50Mi"),))).memory_bytes == 2 * GI + 100 * MI
    )


def test_resources_of_the_pod_itself_cover_its_devices() -> None:
    own = amounts({"cpu": "2", "memory": "2Gi"}, {"cpu": "4", "memory": "4Gi"})
    mapped = claim("c1", mapping={"cpu": "1", "memory": "1000Mi"})
    found = pod({}, resources=own, claims=(mapped,))
    assert pod_values(found).memory_bytes == 4 * GI
    assert str(container_limits(found, found.spec.containers[0])["memory"]) == "4Gi"
    limited = pod(SMALL, resources=own, claims=(mapped,))
    assert container_limits(limited, limited.spec.containers[0])["memory"].value() == 2 * GI + 1000 * MI


def test_huge_pages_are_limited_to_what_is_requested_also_by_claims() -> None:
    pages = {"resourceClaimName": "c", "containers": ["c1", "c2"], "overhead": [
        {"name": "hugepages-2Mi", "perPod": "100Mi", "perContainer": "50Mi"}]}  # fmt: skip
    found = pod(amounts({"hugepages-2Mi": "2Mi"}, {"hugepages-2Mi": "2Mi"}), {}, qos="BestEffort", claims=(pages,))
    assert pod_values(found).huge_pages == {2 * MI: 202 * MI}
    first, second = (container_limits(found, each)["hugepages-2Mi"].value() for each in found.spec.containers)
    assert (first, second) == (152 * MI, 150 * MI)
    assert old_files(pod_values(found), (2 * MI, GI))["hugetlb"] == (
        ("hugetlb.2MB.limit_in_bytes", str(202 * MI)),
        ("hugetlb.1GB.limit_in_bytes", "0"),
    )


def test_files_of_both_versions() -> None:
    values = GroupValues(cpu_shares=1024, cpu_quota_us=50_000, memory_bytes=UNLIMITED, pids=7)
    assert old_files(values, ()) == {
        "cpu": (("cpu.shares", "1024"), ("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "50000")),
        "memory": (("memory.limit_in_bytes", "-1"),),
        "pids": (("pids.max", "7"),),
    }
    assert new_files(values, ()) == {
        "cpu": (("cpu.weight", "39"), ("cpu.max", "50000 100000")),
        "memory": (("memory.max", "max"),),
        "pids": (("pids.max", "7"),),
    }


def test_only_what_grows_is_raised_first() -> None:
    now = GroupValues(cpu_quota_us=100_000, memory_bytes=GI)
    assert now.growth_to(GroupValues(cpu_quota_us=50_000, memory_bytes=2 * GI)) == GroupValues(memory_bytes=2 * GI)
    assert now.growth_to(GroupValues(cpu_quota_us=UNLIMITED)) == GroupValues(cpu_quota_us=UNLIMITED)
    free = GroupValues(cpu_quota_us=UNLIMITED, memory_bytes=UNLIMITED)
    assert free.growth_to(now) == GroupValues()
    assert free.is_lowered_to(GI)
    assert not now.is_lowered_to(GI)
    assert not now.is_lowered_to(UNLIMITED)


def test_burstable_pods_share_what_they_request_together() -> None:
    found = class_values([pod(SMALL), pod(SMALL), pod(SMALL, qos="Guaranteed"), pod({}, qos="BestEffort")])
    assert found["Burstable"].cpu_shares == 2048
    assert found["BestEffort"].cpu_shares == 2


def test_who_is_killed_first() -> None:
    def score(found: RunnablePod, position: int = 0) -> int:
        return oom_score(found, (*found.spec.init_containers, *found.spec.containers)[position], 10 * GI)

    assert score(pod(SMALL, qos="Guaranteed")) == -997
    assert score(pod({}, priorityClassName="system-node-critical")) == -997
    assert score(pod({}, qos="BestEffort")) == 1000
    assert score(pod(SMALL)) == 900
    assert score(pod({}, SMALL)) == 999
    # Its share of what several use.
    assert score(pod(SMALL, SMALL, claims=(claim("c1", "c2", mapping={"memory": "2Gi"}),))) == 800
    # What the pod requests beyond its containers is divided among them.
    own = amounts({"memory": "4Gi"})
    assert score(pod(SMALL, SMALL, resources=own)) == 800
    # A sidecar is not killed before those that it serves.
    side = {"name": "side", "restartPolicy": "Always"}
    assert score(pod(SMALL, initContainers=[side])) == 900
