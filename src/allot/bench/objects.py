"""The objects of the scheduler benchmark's workloads, as JSON values.

Re-creations of Kubernetes' test objects: their contents determine the scheduler's work, so attributes, capacities and
names are the same.
"""

from __future__ import annotations

from typing import Any

from allot.bench.workloads import Workload

Object = dict[str, Any]

DRIVER = "test-driver.cdi.k8s.io"
RESOURCE_V1 = "resource.k8s.io/v1"
TEMPLATE_NAME = "test-claim-template"
CLASS_NAME = "test-class"
_PODS_PER_CLAIM = 5
_IMAGE = "registry.k8s.io/pause:3.10.1"


# --- nodes ---


def node_with_dra(index: int) -> Object:
    """A node that has devices."""
    return _node(f"scheduler-perf-dra-{index}", {"node-with-dra": "true"})


def plain_node(name: str) -> Object:
    """A node without devices."""
    return _node(name, {})


def _node(name: str, labels: dict[str, str]) -> Object:
    amounts = {"pods": "110", "cpu": "4", "memory": "32Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
            "phase": "Running",
        },
    }


# --- classes and taint rules ---


def device_class(name: str = CLASS_NAME, driver: str = DRIVER, condition: str = "", extended: str = "") -> Object:
    """A class for the devices of a driver."""
    expression = f'device.driver == "{driver}"' + (f" && {condition}" if condition else "")
    spec: Object = {"selectors": [{"cel": {"expression": expression}}]}
    if extended:
        spec["extendedResourceName"] = extended
    return {"apiVersion": RESOURCE_V1, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def taint_rule() -> Object:
    """Taints every device."""
    taint = {"key": "example.com/taint", "value": "tainted", "effect": "NoSchedule"}
    return {
        "apiVersion": RESOURCE_V1,
        "kind": "DeviceTaintRule",
        "metadata": {"name": "taint-all-devices"},
        "spec": {"taint": taint},
    }


# --- slices ---


def basic_slice(index: int, workload: Workload) -> Object:
    """Graphics cards of a node."""
    devices = [_card(number, number % workload.pci_roots) for number in range(workload.devices)]
    return _slice(f"resourceslice-{index}", index, devices=devices)


def _card(number: int, root: int) -> Object:
    bus = f"0000:0{number}:00.0"
    texts = {
        "driver": "xe",
        "resource.k8s.io/pciRoot": str(root),
        "family": "Arc Pro B-Series",
        "health": "Healthy",
        "model": "B60",
        "pciAddress": bus,
        "pciId": "0xe211",
        "pciRoot": f"0{root}",
        "resource.kubernetes.io/pciBusID": bus,
        "resource.kubernetes.io/pciRoot": f"pci0000:0{root}",
        "type": "gpu",
    }
    attributes: Object = {name: {"string": text} for name, text in texts.items()}
    attributes["driverVersion"] = {"version": "1.2.3"}
    attributes["sriov"] = {"bool": True}
    capacity = {"memory": {"value": "24480Mi"}, "millicores": {"value": "1k"}}
    return {"name": f"basic-device-{number}", "attributes": attributes, "capacity": capacity}


def list_slice(index: int, workload: Workload) -> Object:
    """Devices whose attribute is a list; the later ones have a value in common."""
    devices = []
    for number in range(workload.devices):
        values = ["shared-value"] if number >= workload.devices_not_matching else []
        values += [f"device-{number}-value-{value}" for value in range(workload.list_values)]
        attributes = {"dra.example.com/match": {"strings": values}}
        devices.append({"name": f"device-{number}", "attributes": attributes})
    return _slice(f"resourceslice-{index}", index, devices=devices)


def counters_slice(index: int, _workload: Workload) -> Object:
    """Counters of two partitions."""
    counters = {f"counter{number}": {"value": "1"} for number in range(1, 5)}
    sets = [{"name": "counter-set", "counters": counters}]
    return _slice(f"resourceslice-countersets-{index}", index, count=2, sharedCounters=sets)


def partitions_slice(index: int, workload: Workload) -> Object:
    """Two partitions."""
    groups = {"compatibilityGroups": ["mig"]} if workload.case == "CompatibilityGroups" else {}
    devices = []
    for number in (1, 2):
        names = (f"counter{number * 2 - 1}", f"counter{number * 2}")
        consumed = {"counterSet": "counter-set", "counters": {name: {"value": "1"} for name in names}, **groups}
        devices.append({"name": f"device-{number}", "consumesCounters": [consumed]})
    return _slice(f"resourceslice-devices-{index}", index, count=2, devices=devices)


def backtracking_counters_slice(index: int, _workload: Workload) -> Object:
    """Counters such that the first device is always one too many."""
    processors = {f"cpu{number}": {"value": "1"} for number in range(1, 9)}
    sets = [
        {"name": "counter-set-for-cpu", "counters": processors},
        {"name": "counter-set-for-mem", "counters": {"mem": {"value": "70Gi"}}},
    ]
    return _slice(f"resourceslice-countersets-{index}", index, count=2, sharedCounters=sets)


def backtracking_devices_slice(index: int, _workload: Workload) -> Object:
    """Eight devices of which seven fit."""
    devices = []
    for number in range(1, 9):
        memory = "20Gi" if number == 1 else "10Gi"
        consumed = [
            {"counterSet": "counter-set-for-cpu", "counters": {f"cpu{number}": {"value": "1"}}},
            {"counterSet": "counter-set-for-mem", "counters": {"mem": {"value": memory}}},
        ]
        devices.append({"name": f"device-{number}", "consumesCounters": consumed})
    return _slice(f"resourceslice-devices-{index}", index, count=2, devices=devices)


def shareable_slice(index: int, _workload: Workload) -> Object:
    """Devices with shared bandwidth."""
    policy = {"default": "1M", "validRange": {"min": "1M", "step": "8"}}
    devices = [
        {
            "name": f"shareable-device-{number}",
            "allowMultipleAllocations": True,
            "attributes": {"dra.example.com/index": {"int": number}},
            "capacity": {"bandwidth": {"value": "10Gi" if number == 2 else "10G", "requestPolicy": policy}},
        }
        for number in range(4)
    ]
    return _slice(f"resourceslice-{index}", index, devices=devices)


def network_slice(index: int, _workload: Workload) -> Object:
    """A device that many nodes can reach."""
    expression = {"key": "node-with-dra", "operator": "In", "values": ["true"]}
    made = _slice(f"resourceslice-podgroup-{index}", index, devices=[{"name": "device"}])
    del made["spec"]["nodeName"]
    made["spec"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return made


def _slice(name: str, index: int, *, count: int = 1, **content: Any) -> Object:
    return {
        "apiVersion": RESOURCE_V1,
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": f"resourceslice-{index}", "generation": 1, "resourceSliceCount": count},
            "nodeName": f"scheduler-perf-dra-{index}",
            **content,
        },
    }


# --- claims and templates ---


def claim_spec(workload: Workload) -> Object:
    """What pods of a workload ask for."""
    exact: Object = {"deviceClassName": CLASS_NAME}
    devices: Object = {}
    if workload.case in ("Partitionable", "CompatibilityGroups"):
        exact["count"] = 2
    elif workload.case == "PartitionableBacktracking":
        exact["count"] = 7
    elif workload.case == "ConsumableCapacity":
        exact |= {"count": 2, "capacity": {"requests": {"bandwidth": "2500M"}}}
        devices["constraints"] = [{"requests": ["req-0"], "distinctAttribute": "dra.example.com/index"}]
    elif workload.case == "DeviceTaintToleration":
        exact["tolerations"] = [{"key": "example.com/taint", "operator": "Exists"}]
    if workload.selector:
        exact["selectors"] = [{"cel": {"expression": workload.selector}}]
    if workload.constraints:
        devices["constraints"] = [dict(constraint) for constraint in workload.constraints]
    if workload.case == "FirstAvailable":
        choices = [
            {"name": "sub-0", "deviceClassName": "no-devices-class"},
            {"name": "sub-1", "deviceClassName": CLASS_NAME},
        ]
        devices["requests"] = [{"name": "req-0", "firstAvailable": choices}]
    else:
        devices["requests"] = [{"name": f"req-{number}", "exactly": exact} for number in range(workload.requests)]
    return {"devices": devices}


def claim(index: int, workload: Workload) -> Object:
    """A claim that exists before its pods. Initial claims ask for one device, regardless of the pods; partitions for all
    of a node's."""
    counts = {"Partitionable": 2, "CompatibilityGroups": 2, "PartitionableBacktracking": 7}
    exact = {"deviceClassName": CLASS_NAME, "count": counts.get(workload.case, 1)}
    return {
        "apiVersion": RESOURCE_V1,
        "kind": "ResourceClaim",
        "metadata": {"name": f"test-claim-{index}"},
        "spec": {"devices": {"requests": [{"name": "req-0", "exactly": exact}]}},
    }


def claim_template(workload: Workload) -> Object:
    """The template of claims."""
    return {
        "apiVersion": RESOURCE_V1,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": TEMPLATE_NAME},
        "spec": {"spec": claim_spec(workload)},
    }


# --- pods ---


def pod_with_template(_index: int, _workload: Workload) -> Object:
    """A pod with its own claim."""
    return _pod({"generateName": "test-dra"}, {"resourceClaimTemplateName": TEMPLATE_NAME})


def pod_with_claim(index: int, _workload: Workload) -> Object:
    """A pod with an existing claim; five pods share one."""
    return _pod({"name": f"test-dra-{index}"}, {"resourceClaimName": f"test-claim-{index // _PODS_PER_CLAIM}"})


def group_pod_with_claim(index: int, workload: Workload) -> Object:
    """A pod of a group, with the group's claim."""
    group = index % workload.pod_groups
    return _in_group(_pod({"generateName": "test-dra"}, {"resourceClaimName": f"test-claim-{group}"}), group)


def group_pod_with_template(index: int, workload: Workload) -> Object:
    """A pod of a group, with one claim for the group."""
    made = _pod({"generateName": "test-dra"}, {"resourceClaimTemplateName": TEMPLATE_NAME})
    return _in_group(made, index % workload.pod_groups)


def _in_group(pod: Object, group: int) -> Object:
    pod["spec"]["schedulingGroup"] = {"podGroupName": f"test-dra-{group}"}
    return pod


def pod_with_extended_resource(index: int, workload: Workload) -> Object:
    """A pod that asks for a device as an extended resource."""
    amounts = {f"{workload.extended_resource}-{index % workload.classes}": "1"}
    return _pod({"name": f"test-dra-{index}"}, None, amounts)


def scoring_pod(index: int, workload: Workload) -> Object:
    """The same extended resource for all."""
    return _pod({"name": f"scoring-test-pod-{index}"}, None, {workload.extended_resource: "1"})


def _pod(metadata: Object, source: Object | None, amounts: dict[str, str] | None = None) -> Object:
    container: Object = {"name": "pause", "image": _IMAGE}
    spec: Object = {"containers": [container]}
    if source is not None:
        container["resources"] = {"claims": [{"name": "resource"}]}
        spec["resourceClaims"] = [{"name": "resource", **source}]
    if amounts:
        container["resources"] = {"requests": amounts, "limits": amounts}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pod_group(index: int, workload: Workload) -> Object:
    """A group whose pods share a claim."""
    if workload.case == "SharedPodGroupResourceClaimTemplate":
        source = {"resourceClaimTemplateName": TEMPLATE_NAME}
    else:
        source = {"resourceClaimName": f"test-claim-{index}"}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": f"test-dra-{index}"},
        "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": [{"name": "resource", **source}]},
    }
