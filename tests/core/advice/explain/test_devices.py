"""Causes that lie with devices, and changes that were tried out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.explain.report import Explanation, Reason
from allot.core.advice.explain.text import lines
from allot.core.features import DEFAULT_GATES
from core.advice.explain.clusters import (
    DRIVER,
    asks,
    claim,
    device_class,
    event,
    explained,
    gpu,
    gpus,
    holding,
    node,
    pod,
    pool,
    running,
    snapshot,
    template,
    templated,
    wanting,
)

MEMORY = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0'


def test_no_slices_means_that_the_driver_does_not_run() -> None:
    found = explained(node("n"), device_class(), templated("train", asks()))
    assert found.reason is Reason.NO_DRIVER
    assert "there are no ResourceSlices" in found.cause
    assert "driver gpu.nvidia.com" in found.cause
    assert not any(change.verified for change in found.changes)


def test_a_class_that_names_another_driver_is_told_with_the_driver_that_is_there() -> None:
    wrong = device_class(expression='device.driver == "gpu.nvidia.co"')
    found = explained(node("n"), pool("n", gpus(1)), wrong, templated("train", asks()))
    assert found.reason is Reason.NOT_IN_CLASS
    assert 'selects driver "gpu.nvidia.co"' in found.cause
    assert found.changes[0].expression == 'device.driver == "gpu.nvidia.com"'


@pytest.mark.parametrize("driver", ["gpu.amd.com", "dra.net"])
def test_devices_of_a_driver_with_another_name_are_not_offered_instead(driver: str) -> None:
    absent = device_class(expression=f'device.driver == "{driver}"')
    found = explained(node("n"), pool("n", gpus(1)), absent, templated("train", asks()))
    assert found.reason is Reason.NO_DRIVER
    assert f"there are no ResourceSlices of driver {driver}: it runs on no node" in found.cause
    assert found.changes[0].text == f"install driver {driver} on the nodes that have the hardware"
    assert not any("name driver" in change.text for change in found.changes)


def test_what_selectors_removed_is_told_with_values() -> None:
    found = explained(node("n"), pool("n", gpus(2)), device_class(), templated("train", asks(MEMORY)))
    assert found.reason is Reason.SELECTOR
    assert "2 have memory 40Gi, need 80Gi" in found.cause
    (removed,) = found.requests[0].removed
    assert (removed.count, removed.actual, removed.needed) == (2, "40Gi", "80Gi")
    assert found.changes[0].text.startswith("ask for memory of at least 40Gi")


def test_devices_that_others_hold_are_told_with_claim_pod_and_time() -> None:
    found = explained(
        node("n"),
        pool("n", gpus(1)),
        device_class(),
        claim("held", asks(), status=holding("n", "gpu-0", users=("other",))),
        running("other", "n", "held"),
        templated("train", asks()),
    )
    assert found.cause == (
        "default/train is pending because the only device of class gpu (gpu-0 on node n) is in use by pod default/other"
    )
    (holder,) = found.requests[0].holders
    assert (holder.claim, holder.pods, holder.seconds) == ("default/held", ("default/other",), 3600)
    assert found.changes[0].patches[0].action == "delete"
    assert found.changes[0].node == "n"


def test_a_claim_that_nobody_uses_can_be_deleted() -> None:
    found = explained(
        node("n"),
        pool("n", gpus(1)),
        device_class(),
        claim("idle", asks(), status=holding("n", "gpu-0")),
        templated("train", asks()),
    )
    assert "which no pod uses" in found.cause
    assert found.changes[0].text == "delete claim default/idle, which no pod uses now"


def test_more_devices_than_any_node_has_can_be_lowered_to_what_there_is() -> None:
    found = explained(
        node("a"), node("b"), pool("a", gpus(2)), pool("b", gpus(3)), device_class(), templated("train", asks(count=8))
    )
    assert found.reason is Reason.TOO_FEW
    assert "no node has more than 3 (node b)" in found.cause
    (operation,) = found.changes[0].patches[0].patch
    assert operation == {"op": "replace", "path": "/spec/spec/devices/requests/0/exactly/count", "value": 3}


def test_a_claim_of_its_own_is_changed_in_place_and_must_be_made_again() -> None:
    found = explained(
        node("n"), pool("n", gpus(2)), device_class(), claim("own", asks(count=3)), wanting("train", "own")
    )
    patch = found.changes[0].patches[0]
    assert (patch.kind, patch.name, patch.recreate) == ("ResourceClaim", "own", True)


def test_a_pool_that_is_incomplete_is_told_with_the_number_of_its_slices() -> None:
    found = explained(node("n"), pool("n", gpus(1), slices=2), device_class(), templated("train", asks()))
    assert found.reason is Reason.POOL_INCOMPLETE
    assert "1 ResourceSlice is published, but resourceSliceCount is 2" in found.cause
    assert found.changes[0].verified


def test_a_new_generation_that_is_incomplete_hides_the_old_one() -> None:
    found = explained(
        node("n"),
        pool("n", gpus(1)),
        pool("n", gpus(1), generation=2, slices=2),
        device_class(),
        templated("train", asks()),
    )
    assert "of generation 2" in found.cause
    assert "1 slice of generation 1 does not count" in found.cause


def test_a_device_that_its_driver_tainted_is_repaired_rather_than_tolerated() -> None:
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    found = explained(node("n"), pool("n", [gpu(taints=[taint])]), device_class(), templated("train", asks()))
    assert found.reason is Reason.TAINT
    assert "example.com/broken:NoSchedule" in found.cause
    assert found.changes[0].text.startswith("repair or reset device gpu-0 of node n")
    assert found.changes[1].text.startswith("tolerate taint example.com/broken")


def test_a_taint_rule_is_named() -> None:
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "repair"},
        "spec": {
            "deviceSelector": {"driver": "gpu.nvidia.com"},
            "taint": {"key": "example.com/repair", "effect": "NoExecute"},
        },
    }
    found = explained(node("n"), pool("n", gpus(1)), device_class(), rule, templated("train", asks()))
    assert "(set by DeviceTaintRule repair)" in found.cause
    assert "delete DeviceTaintRule repair, if the reason for its taint is over" in [
        change.text for change in found.changes
    ]


def _rule(name: str) -> dict[str, Any]:
    spec = {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "example.com/repair", "effect": "NoSchedule"}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize("name", ["rack7-firmware", "firmware-of-rack-7", "rack-r7", "rack.07"])
def test_a_rule_for_a_rack_that_taints_all_devices_is_narrowed(name: str) -> None:
    racks = {"a": "r6", "b": "r7", "c": "r7", "d": "r70"}
    cluster = [[node(each, labels={"example.com/rack": rack}), pool(each, gpus(1))] for each, rack in racks.items()]
    found = explained(*cluster, device_class(), _rule(name), templated("train", asks()))
    assert f"DeviceTaintRule {name}, which has no pool in its deviceSelector, such as b, and so taints" in found.cause
    assert found.changes[0].text == (
        f"set deviceSelector.pool: b in DeviceTaintRule {name}, and create one like it for pool c, so that only what its name "
        "says is tainted"
    )
    assert found.changes[0].node in ("a", "d")


def test_a_rule_that_taints_all_devices_of_a_driver_and_names_no_place_is_not_narrowed() -> None:
    cluster = [[node(each, labels={"example.com/rack": "r7"}), pool(each, gpus(1))] for each in ("a", "b")]
    found = explained(*cluster, device_class(), _rule("rack7-firmware"), templated("train", asks()))
    assert "has no pool in its deviceSelector and so taints every device of the driver" in found.cause
    assert found.changes[0].text.startswith("delete DeviceTaintRule rack7-firmware")


def _made(each: dict[str, Any], name: str = "web", kind: str = "ReplicaSet") -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    return {**each, "metadata": {**each["metadata"], "ownerReferences": [owner]}}


def test_a_holder_that_would_take_another_device_is_restarted_and_not_scaled_down() -> None:
    one, pair = asks('device.attributes["gpu.nvidia.com"].size == "s"'), asks(count=2)
    pair["devices"]["constraints"] = [{"matchAttribute": "gpu.nvidia.com/root"}]
    roots = [("r0", "s"), ("r1", "s"), ("r1", "m")]
    devices = [
        gpu(number, attributes={"root": {"string": root}, "size": {"string": size}})
        for number, (root, size) in enumerate(roots)
    ]
    held = claim("held", one, status=holding("n", "gpu-1", users=("web-1",)))
    found = explained(
        node("n"),
        pool("n", devices),
        device_class(),
        held,
        _made(running("web-1", "n", "held")),
        templated("train", pair),
    )
    assert found.changes[0].text == ("delete pod default/web-1 on node n (its successor there then uses device gpu-0)")


def test_a_replica_of_the_pod_that_nobody_recreates_goes_after_the_pods_of_others() -> None:
    def server(name: str) -> dict[str, Any]:
        spec = [{"name": "gpu", "resourceClaimTemplateName": "any"}]
        status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu-x"}]}
        return pod(name, resourceClaims=spec, status=status)

    first = server("serve-0")
    first["spec"]["nodeName"], first["status"]["phase"] = "n", "Running"
    found = explained(
        node("n"),
        pool("n", gpus(2)),
        device_class(),
        template("any", asks()),
        claim("serve-0-gpu-x", asks(), owner="serve-0", status=holding("n", "gpu-0", users=("serve-0",))),
        first,
        claim("z", asks(), status=holding("n", "gpu-1", users=("zoo",))),
        running("zoo", "n", "z"),
        claim("serve-1-gpu-x", asks(), owner="serve-1"),
        server("serve-1"),
        name="serve-1",
    )
    assert found.changes[0].text.startswith("delete pod default/zoo")


def test_devices_that_are_free_but_not_together_are_told_with_the_values_that_clash() -> None:
    spec = asks(count=2, constraints=[{"matchAttribute": "gpu.nvidia.com/root"}])
    found = explained(node("n"), pool("n", gpus(2)), device_class(), templated("train", spec))
    assert found.reason is Reason.CONSTRAINT
    assert (
        "no node has 2 free devices with the same gpu.nvidia.com/root: on node n, those for request gpu have root-0, root-1"
        in found.cause
    )
    assert found.changes[0].text.startswith("drop constraint matchAttribute gpu.nvidia.com/root from")


def test_of_those_who_hold_devices_that_would_match_the_one_who_should_leave_comes_first() -> None:
    root = "resource.kubernetes.io/pcieRoot"
    cards = [gpu(number, attributes={root: {"string": f"root-{number}"}}) for number in range(4)]
    ports = [{"name": f"nic-{number}", "attributes": {root: {"string": f"root-{number}"}}} for number in range(4)]
    nics = pool("n", ports, driver="nic.example.com")
    nics["metadata"]["name"] = "n-nics"
    requests = [
        {"name": name, "exactly": {"deviceClassName": name, "allocationMode": "ExactCount", "count": 1}}
        for name in ("gpu", "nic")
    ]
    wants = {"devices": {"requests": requests, "constraints": [{"matchAttribute": root}]}}
    held = holding("n", "nic-2", "nic-3", users=("zeta",))
    for result in held["allocation"]["devices"]["results"]:
        result["driver"] = "nic.example.com"
    found = explained(
        node("n"),
        pool("n", cards),
        nics,
        device_class(),
        device_class("nic", 'device.driver == "nic.example.com"'),
        claim("alpha-gpus", asks(count=2), status=holding("n", "gpu-0", "gpu-1", users=("alpha",))),
        claim("zeta-nics", asks(count=2, of="nic"), status=held),
        running("alpha", "n", "alpha-gpus"),
        running("zeta", "n", "zeta-nics"),
        templated("train", wants),
    )
    assert (
        "(in use there: root-2 and root-3 by pod default/zeta; root-0 and root-1 by pod default/alpha)" in found.cause
    )
    assert found.changes[0].text.startswith("delete pod default/zeta on node n")


def test_counters_that_are_used_up_are_told_with_numbers() -> None:
    def part(number: int) -> dict[str, object]:
        drawn = [{"counterSet": "board", "counters": {"slices": {"value": "4"}}}]
        return {**gpu(number), "consumesCounters": drawn}

    counters = {
        **pool("n", [], slices=2),
        "metadata": {"name": "counters"},
    }
    del counters["spec"]["devices"]
    counters["spec"]["sharedCounters"] = [{"name": "board", "counters": {"slices": {"value": "7"}}}]
    found = explained(
        node("n"),
        pool("n", [part(0), part(1)], slices=2),
        counters,
        device_class(),
        claim("held", asks(), status=holding("n", "gpu-0", users=("other",))),
        running("other", "n", "held"),
        templated("train", asks()),
    )
    assert found.reason is Reason.COUNTERS
    assert "needs 4 slices of board, but 3 of 7 are free; pod default/other holds the rest" in found.cause
    assert found.changes[0].text == "delete pod default/other on node n, or wait until it ends"


def test_a_feature_gate_that_is_off_is_named() -> None:
    conditional = gpu(bindingConditions=["ready"], bindingFailureConditions=["failed"])
    found = explained(
        node("n"),
        pool("n", [conditional]),
        device_class(),
        templated("train", asks()),
        gates=DEFAULT_GATES.changed(disable=["DRADeviceBindingConditions"]),
    )
    assert found.reason is Reason.FEATURE
    assert "DRADeviceBindingConditions" in found.cause
    assert found.changes[0].patches[0].action == "gate"


def test_all_devices_of_a_node_are_told_from_a_number_of_them() -> None:
    spec = asks()
    spec["devices"]["requests"][0]["exactly"] = {"deviceClassName": "gpu", "allocationMode": "All"}
    found = explained(
        node("n"),
        pool("n", gpus(2)),
        device_class(),
        claim("held", asks(), status=holding("n", "gpu-0", users=("other",))),
        running("other", "n", "held"),
        templated("train", spec),
    )
    assert "asks for all devices of class gpu on a node" in found.cause
    assert [change.text.partition(" on ")[0].partition(" in ")[0] for change in found.changes[:2]] == [
        "delete pod default/other",
        "ask for 1 device instead of all",
    ]


def test_none_of_several_alternatives_is_told_for_each() -> None:
    def alternative(name: str, memory: str) -> dict[str, object]:
        expression = f'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{memory}")) >= 0'
        return {"name": name, "deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]}

    spec = {
        "devices": {
            "requests": [{"name": "gpu", "firstAvailable": [alternative("big", "80Gi"), alternative("small", "60Gi")]}]
        }
    }
    found = explained(node("n"), pool("n", gpus(1)), device_class(), templated("train", spec))
    assert 'none of the 2 alternatives of request "gpu" fits' in found.cause
    assert "need 80Gi" in found.cause
    assert "need 60Gi" in found.cause


def test_sharing_that_is_configured_in_a_template_does_not_share() -> None:
    parameters = {"apiVersion": "x/v1", "kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}
    spec = asks(config=[{"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}])
    named = [{"name": "gpu", "resourceClaimTemplateName": "shared"}]

    def member(name: str, **more: object) -> list[dict[str, object]]:
        status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]}
        made = templated(name, spec, **more)[2]  # type: ignore[arg-type]
        made["spec"]["resourceClaims"] = named
        made["status"] |= status
        return [made]

    found = explained(
        node("n"),
        pool("n", gpus(1)),
        device_class(),
        template("shared", spec),
        claim("first-gpu", spec, owner="first", status=holding("n", "gpu-0", users=("first",))),
        claim("train-gpu", spec, owner="train"),
        member("first", nodeName="n", status_of_pod={"phase": "Running"}),
        member("train"),
    )
    assert "configures TimeSlicing, but each pod with a template gets its own claim" in found.cause
    assert found.changes[0].text.startswith("create ResourceClaim default/shared")


@pytest.mark.parametrize("taken", [0, 2])
def test_the_nearest_miss_is_the_node_that_lacks_least(taken: int) -> None:
    held = [
        claim(f"held-{number}", asks(), status=holding("b", f"gpu-{number}", users=(f"p{number}",)))
        for number in range(taken)
    ]
    users = [running(f"p{number}", "b", f"held-{number}") for number in range(taken)]
    found = explained(
        node("a"),
        node("b"),
        pool("a", gpus(2)),
        pool("b", gpus(3)),
        device_class(),
        held,
        users,
        templated("train", asks(count=4)),
    )
    assert found.nearest is not None
    assert found.nearest.node == ("a" if taken else "b")


# --- who has the devices, and how they get free ---


def fabric(name: str) -> dict[str, object]:
    """A device that every node reaches."""
    found = pool(name, [gpu()])
    del found["spec"]["nodeName"]
    return {**found, "spec": {**found["spec"], "allNodes": True}}


def terminating(at: str, **metadata: object) -> dict[str, object]:
    """A pod that has the device of the fabric, and was deleted."""
    found = running("old", "n", "held")
    return {**found, "metadata": {**found["metadata"], "deletionTimestamp": at, **metadata}}


def held_on(where: str, *others: dict[str, object]) -> Explanation:
    """A device of the network that a pod on a node has."""
    held = claim("held", asks(), status=holding("fabric", "gpu-0", users=("old",)))
    old = others or (running("old", where, "held"),)
    return explained(node("n"), fabric("fabric"), device_class(), held, *old, templated("train", asks()))


def test_a_pod_of_a_node_that_is_gone_is_deleted_by_force_and_the_risk_is_told() -> None:
    found = held_on("lost")
    assert "in use by pod default/old of node lost, which no longer exists" in found.cause
    assert found.changes[0].text == (
        "force the deletion of pod default/old (kubectl delete --force): node lost no longer exists, so nothing can stop it; make "
        "sure that the machine is off, or its containers keep running with their devices"
    )
    assert found.changes[0].node == "n"


def test_a_pod_that_is_about_to_end_is_waited_for() -> None:
    found = held_on("n", terminating("2027-01-15T08:00:10Z"))
    assert found.changes[0].waits
    assert "What happens anyway (tried as if it had happened, and led to a placement):" in list(lines(found))
    assert found.changes[0].text == "wait until pod default/old on node n is gone, or force the deletion if it hangs"


def test_a_pod_that_should_have_ended_long_ago_is_not_waited_for() -> None:
    found = held_on("n", terminating("2027-01-15T07:00:00Z"))
    assert not found.changes[0].waits
    assert found.changes[0].text == (
        "find out why pod default/old on node n, which should have been gone 1h ago, hangs: allot explain old -n default"
    )


def test_a_finalizer_is_seen_to() -> None:
    found = held_on("n", terminating("2027-01-15T07:00:00Z", finalizers=["a.io/b"]))
    assert found.changes[0].text == "check finalizer a.io/b, which keeps pod default/old on node n"


def test_values_that_a_constraint_compares_are_told_of_each_node() -> None:
    found = explained(
        node("a"),
        node("b"),
        pool("a", gpus(2)),
        pool("b", [gpu(4), gpu(5)]),
        device_class(),
        templated("train", asks(count=2, constraints=[{"matchAttribute": f"{DRIVER}/root"}])),
    )
    told = {group.nodes: group.reasons for group in found.nodes}
    assert told == {
        (name,): (f"its free devices cannot be used together (request gpu: {DRIVER}/root {values})",)
        for name, values in (("a", "root-0, root-1"), ("b", "root-4, root-5"))
    }


def test_patches_are_in_the_version_that_the_cluster_serves() -> None:
    objects = snapshot(node("n"), pool("n", gpus(1)), device_class(), templated("train", asks(count=2)))
    for version, path in (("v1beta1", "count"), ("v1beta2", "exactly/count")):
        found = Explainer(msgspec.structs.replace(objects, device_api=version)).pod("default", "train")
        (patch,) = found.changes[0].patches
        assert [each["path"] for each in patch.patch] == [f"/spec/spec/devices/requests/0/{path}"]
        assert patch.api_version == ("resource.k8s.io/v1beta1" if version == "v1beta1" else "")


# --- drivers whose pods are not there ---


def plugin_set(**spec: Any) -> dict[str, Any]:
    """The DaemonSet of the driver."""
    labels = {"app": "nvidia-dra-driver-kubelet-plugin"}
    pod_spec = {"containers": [{"name": "plugin", "image": "nvidia/k8s-dra-driver:1"}], **spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "nvidia-dra-driver-kubelet-plugin", "namespace": "default", "uid": "uid-set"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod_spec}},
    }


def test_a_driver_that_selects_no_node_is_told_with_the_label() -> None:
    found = explained(
        node("n"), plugin_set(nodeSelector={"nvidia.com/dra": "true"}), device_class(), templated("train", asks())
    )
    assert "DaemonSet default/nvidia-dra-driver-kubelet-plugin skips every node" in found.cause
    assert "lacks label nvidia.com/dra=true" in found.cause
    assert found.changes[0].text == "label the nodes that have the hardware with nvidia.com/dra=true"


def test_a_driver_whose_pods_are_refused_is_told_with_the_refusal() -> None:
    refused = event("nvidia-dra-driver-kubelet-plugin", "FailedCreate", 'violates PodSecurity "baseline:latest"')
    refused["involvedObject"]["kind"] = "DaemonSet"
    found = explained(node("n"), plugin_set(), refused, device_class(), templated("train", asks()))
    assert 'cannot be created: violates PodSecurity "baseline:latest"' in found.cause
    assert "pod-security.kubernetes.io/enforce=privileged" in found.changes[0].text


def test_a_pod_of_the_driver_that_does_not_fit_its_node_is_told() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient cpu"}
    plugin = pod("nvidia-dra-plugin-x", affinity={"nodeAffinity": required}, status={"conditions": [refused]})
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nvidia-dra-plugin", "uid": "uid-set"}
    plugin["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    found = explained(node("n"), plugin, device_class(), templated("train", asks()))
    assert "pod default/nvidia-dra-plugin-x for node n is pending (Insufficient cpu)" in found.cause
    assert "make room for the driver's pod default/nvidia-dra-plugin-x for node n" in found.changes[0].text


def test_a_memory_of_0_is_one_that_the_driver_could_not_read_also_beside_devices_in_use() -> None:
    spec = asks(f'device.capacity["{DRIVER}"].memory.compareTo(quantity("16Gi")) >= 0')
    held = claim("held", asks(), status=holding("a", "gpu-0", users=("other",)))
    found = explained(
        [device_class(), node("a"), node("b"), pool("a", gpus(1, "0")), pool("b", gpus(1, "0"))],
        [held, running("other", "a", "held")],
        templated("train", spec),
    )
    assert f"0 means that driver {DRIVER} could not read it" in found.cause
    assert found.changes[0].text.startswith(f"let driver {DRIVER} read the memory of its devices")
    assert "on node b" in found.changes[0].text
