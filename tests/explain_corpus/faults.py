"""Faults to plant in a cluster in which a pod can be placed: with one of them it cannot, and nothing else is wrong.

Each says what explain has to find: the kind of the cause, the objects that its first line has to name, and whether anything that
can be done to the cluster's objects helps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from allot.core.advice.explain.report import Reason
from explain_corpus.objects import (
    CREATED,
    DRIVER,
    JSON,
    alternatives,
    claim,
    consumer,
    device,
    device_class,
    devices_of,
    node,
    on_node,
    pod,
    request,
    resource_slice,
    result,
    thing,
    uid_of,
    with_claim,
)
from explain_corpus.objects import template as template_of
from explain_corpus.scenes import CLAIM, EXTENDED, NIC, RESOURCE, TEMPLATE, Scene, group_of

FABRIC = "fabric.example.com"
ATTRIBUTES = f"device.attributes['{DRIVER}']"
ZONE = "topology.kubernetes.io/zone"


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What explain has to say. names: regular expressions for the first line. remedy: one for the text of the first change;
    no_remedy: one that it must not match."""

    reason: Reason
    names: tuple[str, ...] = ()
    fixable: bool = True
    remedy: str = ""
    no_remedy: str = ""
    # What still has to happen after the change.
    then: str = ""


class Fault(msgspec.Struct, frozen=True):
    """A fault. styles: how the pod may ask for its devices; empty for any of template and claim."""

    name: str
    plant: Callable[[Scene], Expected]
    styles: tuple[str, ...] = ()


FAULTS: list[Fault] = []


def fault(*styles: str) -> Callable[[Callable[[Scene], Expected]], Callable[[Scene], Expected]]:
    """Put a function into the list of faults."""

    def put(plant: Callable[[Scene], Expected]) -> Callable[[Scene], Expected]:
        FAULTS.append(Fault(plant.__name__.removeprefix("_").replace("_", "-"), plant, styles))
        return plant

    return put


# --- classes and selectors ---


@fault()
def _class_missing(scene: Scene) -> Expected:
    scene.drop("DeviceClass", scene.class_name)
    return Expected(reason=Reason.CLASS_MISSING, names=(scene.class_name, "not exist"))


@fault()
def _class_misspelt(scene: Scene) -> Expected:
    wrong = scene.class_name.replace("-", "").replace("nvidia", "nvida")
    scene.edit(lambda exactly: exactly.update(deviceClassName=wrong))
    return Expected(reason=Reason.CLASS_MISSING, names=(wrong, "not exist"), remedy=scene.class_name)


@fault()
def _class_selects_another_driver(scene: Scene) -> Expected:
    selector = scene.get("DeviceClass", scene.class_name)["spec"]["selectors"][0]["cel"]
    wrong = scene.random.choice(("nvidia.com", "gpu.nvidia.con", "gpu.nvida.com"))
    selector["expression"] = f"device.driver == '{wrong}'"
    return Expected(reason=Reason.NOT_IN_CLASS, names=(scene.class_name, wrong))


@fault()
def _class_reads_an_attribute_that_is_not_there(scene: Scene) -> Expected:
    selector = scene.get("DeviceClass", scene.class_name)["spec"]["selectors"][0]["cel"]
    selector["expression"] = f"device.driver == '{DRIVER}' && {ATTRIBUTES}.kind == 'gpu'"
    return Expected(reason=Reason.SELECTOR_ERROR, names=(scene.class_name, "kind"))


@fault()
def _attribute_has_another_value(scene: Scene) -> Expected:
    wrong = scene.random.choice(("NVIDIA B300", "NVIDIA H200", scene.product.lower()))
    scene.select(f"{ATTRIBUTES}.productName == '{wrong}'")
    return Expected(reason=Reason.SELECTOR, names=("productName", wrong))


@fault()
def _attribute_is_not_there(scene: Scene) -> Expected:
    name = scene.random.choice(("numa", "vram", "product"))
    scene.select(f"{ATTRIBUTES}.{name} == 'x'")
    return Expected(reason=Reason.SELECTOR_ERROR, names=(rf"\b{name}\b",))


@fault()
def _attribute_has_another_type(scene: Scene) -> Expected:
    scene.select(f"{ATTRIBUTES}.index >= '0'")
    return Expected(reason=Reason.SELECTOR_ERROR, names=("index",))


@fault()
def _attribute_of_another_domain(scene: Scene) -> Expected:
    scene.select("device.attributes['nvidia.com'].type == 'gpu'")
    return Expected(reason=Reason.SELECTOR_ERROR, names=(r"nvidia\.com", "type"))


@fault()
def _version_too_low(scene: Scene) -> Expected:
    scene.select(f"{ATTRIBUTES}.driverVersion.compareTo(semver('590.1.0')) >= 0")
    return Expected(reason=Reason.SELECTOR, names=("driverVersion", r"590\.1\.0", r"580\.126\.20"))


@fault()
def _memory_too_small(scene: Scene) -> Expected:
    scene.select(f"device.capacity['{DRIVER}'].memory.compareTo(quantity('400Gi')) >= 0")
    return Expected(reason=Reason.SELECTOR, names=("memory", "400Gi", scene.memory))


# --- numbers ---


@fault()
def _count_too_high(scene: Scene) -> Expected:
    scene.free_everything()
    wanted = scene.each + scene.random.randint(1, 4)
    scene.edit(lambda exactly: exactly.update(count=wanted))
    return Expected(reason=Reason.TOO_FEW, names=(rf"\b{wanted}\b", rf"\b{scene.each}\b"), remedy=rf"\b{scene.each}\b")


@fault()
def _all_devices_but_one_is_held(scene: Scene) -> Expected:
    scene.free_everything()
    for where in scene.nodes:
        scene.add(*_held(scene, f"busy-{where}", where, "gpu-0"))
    scene.edit(lambda exactly: (exactly.update(allocationMode="All"), exactly.pop("count")))
    return Expected(reason=Reason.IN_USE, names=("all", "busy"))


@fault()
def _every_node_has_one_too_few(scene: Scene) -> Expected:
    scene.free_everything()
    scene.edit(lambda exactly: exactly.update(count=scene.each))
    for where in scene.nodes:
        scene.add(*_held(scene, f"busy-{where}", where, "gpu-0"))
    return Expected(reason=Reason.IN_USE, names=("busy",))


# --- others hold the devices ---


def _held(scene: Scene, name: str, where: str, *devices: str, **fields: Any) -> list[JSON]:
    spec = devices_of(request("gpu", scene.class_name, count=len(devices)))
    running = pod(name, scene.namespace, templates={"gpu": "other-template"}, on=where, **fields)
    return with_claim(running, spec, [result(each, where) for each in devices], on_node(where))


@fault()
def _held_by_equals(scene: Scene) -> Expected:
    scene.fill()
    return Expected(reason=Reason.IN_USE, names=("busy",), remedy="busy")


@fault()
def _held_by_another_namespace(scene: Scene) -> Expected:
    scene.fill(namespace="team-b")
    return Expected(reason=Reason.IN_USE, names=("team-b",))


@fault()
def _held_by_higher_priority(scene: Scene) -> Expected:
    scene.fill(priority=1000)
    return Expected(reason=Reason.IN_USE, names=("busy",), no_remedy="delete")


@fault()
def _held_by_lower_priority_but_may_not_preempt(scene: Scene) -> Expected:
    scene.fill(priority=-10)
    scene.pod["spec"].update(priority=100, preemptionPolicy="Never")
    return Expected(reason=Reason.IN_USE, names=("busy", "Never"), remedy="busy")


@fault()
def _the_victim_that_matters_least(scene: Scene) -> Expected:
    scene.free_everything()
    scene.each, scene.count = 3, 1
    for slice_ in scene.slices:
        first = slice_["spec"]["devices"][0]
        slice_["spec"]["devices"] = [copy.deepcopy(first) | {"name": f"gpu-{number}"} for number in range(3)]
    scene.edit(lambda exactly: exactly.update(count=1))
    least = scene.random.choice(scene.nodes)
    for where in scene.nodes:
        priority = 0 if where == least else 500
        scene.add(*_held(scene, f"important-{where}", where, "gpu-0", priority=1000))
        scene.add(*_held(scene, f"large-{where}", where, "gpu-1", "gpu-2", priority=priority))
    victim = next(each for each in scene.all("ResourceClaim") if each["metadata"]["name"] == f"large-{least}-gpu-q4t9z")
    # Two claims of one device each instead of the large one, of which one has the lowest priority of all.
    scene.objects.remove(victim)
    scene.drop("Pod", f"large-{least}")
    scene.add(*_held(scene, "least", least, "gpu-1", priority=-100), *_held(scene, "middle", least, "gpu-2"))
    scene.pod["spec"]["preemptionPolicy"] = "Never"
    return Expected(reason=Reason.IN_USE, remedy=r"\bleast\b")


@fault()
def _held_by_finished_pods(scene: Scene) -> Expected:
    scene.fill(status={"phase": scene.random.choice(("Succeeded", "Failed"))})
    return Expected(reason=Reason.IN_USE, names=("busy", "finished|ended"), remedy="busy")


@fault()
def _held_by_pods_that_are_gone(scene: Scene) -> Expected:
    for name in scene.fill():
        scene.drop("Pod", name)
    for each in scene.all("ResourceClaim"):
        each["metadata"].pop("ownerReferences", None)
    if scene.style == TEMPLATE:
        own = scene.get("ResourceClaim", scene.claim_name)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": scene.name, "uid": scene.pod["metadata"]["uid"]}
        own["metadata"]["ownerReferences"] = [owner | {"controller": True, "blockOwnerDeletion": True}]
    return Expected(reason=Reason.IN_USE, names=("no longer|gone",), remedy="claim")


@fault()
def _held_by_claims_that_nobody_uses(scene: Scene) -> Expected:
    scene.free_everything()
    for where in scene.nodes:
        spec = devices_of(request("gpu", scene.class_name, count=scene.each))
        results = [result(f"gpu-{number}", where) for number in range(scene.each)]
        scene.add(claim(f"idle-{where}", spec, scene.namespace, results=results, where=on_node(where)))
    return Expected(reason=Reason.IN_USE, names=("idle", "no pod"), remedy="idle")


@fault(EXTENDED)
def _extended_resource_is_held(scene: Scene) -> Expected:
    scene.fill()
    return Expected(reason=Reason.IN_USE, names=(RESOURCE, "busy"), remedy="busy")


@fault(EXTENDED)
def _extended_resource_is_not_mapped(scene: Scene) -> Expected:
    del scene.get("DeviceClass", scene.class_name)["spec"]["extendedResourceName"]
    return Expected(reason=Reason.RESOURCE_UNKNOWN, names=(RESOURCE,), remedy="extendedResourceName")


@fault(EXTENDED)
def _extended_resource_is_misspelt(scene: Scene) -> Expected:
    resources = scene.pod["spec"]["containers"][0]["resources"]
    for part in ("requests", "limits"):
        resources[part]["nvidia.com/gpus"] = resources[part].pop(RESOURCE)
    return Expected(reason=Reason.RESOURCE_UNKNOWN, names=("nvidia.com/gpus", r"nvidia\.com/gpu\b"))


# --- constraints ---


def _constrained(scene: Scene, constraint: JSON) -> None:
    """At least two devices with a constraint."""
    scene.free_everything()
    if scene.each == 1:
        scene.each = 2
        for slice_ in scene.slices:
            second = copy.deepcopy(slice_["spec"]["devices"][0]) | {"name": "gpu-1"}
            second["attributes"]["board"] = {"string": "b1"}
            slice_["spec"]["devices"].append(second)
    for spec in scene.specs:
        spec["devices"]["constraints"] = [{"requests": ["gpu"], **constraint}]
        spec["devices"]["requests"][0]["exactly"]["count"] = 2


@fault()
def _match_attribute_cannot_hold(scene: Scene) -> Expected:
    _constrained(scene, {"matchAttribute": f"{DRIVER}/board"})
    return Expected(reason=Reason.CONSTRAINT, names=("board", "same"))


@fault()
def _match_attribute_is_not_there(scene: Scene) -> Expected:
    _constrained(scene, {"matchAttribute": "resource.kubernetes.io/numaNode"})
    return Expected(reason=Reason.CONSTRAINT, names=("numaNode",))


@fault()
def _distinct_attribute_cannot_hold(scene: Scene) -> Expected:
    _constrained(scene, {"distinctAttribute": f"{DRIVER}/productName"})
    return Expected(reason=Reason.CONSTRAINT, names=("productName",))


@fault()
def _lists_are_compared_without_the_gate(scene: Scene) -> Expected:
    _constrained(scene, {"matchAttribute": f"{DRIVER}/links"})
    for slice_ in scene.slices:
        for each in slice_["spec"]["devices"]:
            each["attributes"]["links"] = {"ints": [1, 2]}
    return Expected(reason=Reason.CONSTRAINT, names=("links", "list"))


# --- what drivers and administrators say of devices ---


def _tainted(scene: Scene, effect: str) -> None:
    for slice_ in scene.slices:
        for each in slice_["spec"]["devices"]:
            each["taints"] = [{"key": f"{DRIVER}/unhealthy", "value": "xid-79", "effect": effect, "timeAdded": CREATED}]


@fault()
def _devices_tainted_no_schedule(scene: Scene) -> Expected:
    scene.free_everything()
    _tainted(scene, "NoSchedule")
    return Expected(reason=Reason.TAINT, names=("unhealthy",), no_remedy="tolerate")


@fault()
def _devices_tainted_no_execute(scene: Scene) -> Expected:
    scene.free_everything()
    _tainted(scene, "NoExecute")
    return Expected(reason=Reason.TAINT, names=("unhealthy",), no_remedy="tolerate")


@fault()
def _devices_tainted_by_a_rule(scene: Scene) -> Expected:
    scene.free_everything()
    effect = scene.random.choice(("NoSchedule", "NoExecute"))
    taint = {"key": "example.com/maintenance", "effect": effect, "timeAdded": CREATED}
    spec = {"deviceSelector": {"driver": DRIVER}, "taint": taint}
    scene.add(thing("resource.k8s.io/v1", "DeviceTaintRule", "maintenance-window", spec=spec))
    return Expected(reason=Reason.TAINT, names=("maintenance-window",), remedy="maintenance-window|tolerate")


@fault()
def _too_many_devices_tainted_by_rules_without_a_pool(scene: Scene) -> Expected:
    scene.free_everything()
    for number in range(scene.each - scene.count + 1):
        spec = {
            "deviceSelector": {"driver": DRIVER, "device": f"gpu-{number}"},
            "taint": {"key": "example.com/broken", "effect": "NoSchedule", "timeAdded": CREATED},
        }
        scene.add(thing("resource.k8s.io/v1", "DeviceTaintRule", f"slot-{number}", spec=spec))
    # The rules name the only pool's device if there is no other.
    wide = len(scene.nodes) > 1
    return Expected(
        reason=Reason.TAINT,
        names=(r"DeviceTaintRules? slot-\d", *(("no pool in its deviceSelector",) if wide else ())),
        remedy=r"DeviceTaintRule slot-\d" if wide else "",
        no_remedy="tolerate",
    )


@fault()
def _pools_incomplete(scene: Scene) -> Expected:
    for slice_ in scene.slices:
        slice_["spec"]["pool"]["resourceSliceCount"] = 3
    return Expected(reason=Reason.POOL_INCOMPLETE, names=("incomplete", scene.nodes[0]))


@fault()
def _new_generation_incomplete(scene: Scene) -> Expected:
    for where in scene.nodes:
        newer = copy.deepcopy(scene.get("ResourceSlice", f"{where}-{DRIVER}-x7k2p"))
        newer["metadata"] |= {"name": f"{where}-new", "uid": uid_of("ResourceSlice", "", f"{where}-new")}
        newer["spec"]["pool"] |= {"generation": 2, "resourceSliceCount": 2}
        scene.add(newer)
    return Expected(reason=Reason.POOL_INCOMPLETE, names=("incomplete", "generation"))


def _new_machine(scene: Scene) -> list[JSON]:
    """The devices of a node that has just come, and would do for the pod."""
    scene.add(node("gpu-new", {ZONE: "a", "accelerator": "nvidia"}))
    for each in scene.all("ResourceSlice"):
        if each["spec"]["driver"] == NIC and each["spec"]["nodeName"] == scene.nodes[0]:
            scene.add(resource_slice("gpu-new", copy.deepcopy(each["spec"]["devices"]), driver=NIC))
    devices: list[JSON] = copy.deepcopy(scene.slices[0]["spec"]["devices"])
    return devices


@fault(TEMPLATE)
def _pool_of_a_new_node_incomplete_and_the_rest_held(scene: Scene) -> Expected:
    scene.fill()
    scene.add(resource_slice("gpu-new", _new_machine(scene), slices=2))
    return Expected(
        reason=Reason.POOL_INCOMPLETE,
        names=("incomplete", "gpu-new", "busy"),
        remedy="driver",
        no_remedy="delete|ask for",
    )


@fault(TEMPLATE)
def _driver_pod_crashes_where_devices_would_be(scene: Scene) -> Expected:
    scene.fill()
    _new_machine(scene)
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "failed to initialize NVML"}}
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
    container = {"name": "main", "ready": False, "restartCount": 31, "state": waits, "lastState": ended}
    status = {"containerStatuses": [container]}
    plugin = pod("nvidia-dra-kubelet-plugin-x", "nvidia-dra", on="gpu-new", priority=2000001000, status=status)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nvidia-dra-kubelet-plugin", "uid": "ds-1"}
    plugin["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    scene.add(plugin)
    return Expected(
        reason=Reason.IN_USE,
        names=("busy", "gpu-new", "crashes", "NVML"),
        remedy="driver's pod",
    )


@fault()
def _device_twice_in_a_pool(scene: Scene) -> Expected:
    for slice_ in scene.slices:
        slice_["spec"]["pool"]["resourceSliceCount"] = 2
    for where in scene.nodes:
        twin = copy.deepcopy(scene.get("ResourceSlice", f"{where}-{DRIVER}-x7k2p"))
        twin["metadata"] |= {"name": f"{where}-twin", "uid": uid_of("ResourceSlice", "", f"{where}-twin")}
        twin["spec"]["devices"] = twin["spec"]["devices"][:1]
        scene.add(twin)
    return Expected(reason=Reason.POOL_INVALID, names=("gpu-0", "invalid"))


@fault()
def _no_driver(scene: Scene) -> Expected:
    scene.free_everything()
    for slice_ in scene.slices:
        scene.objects.remove(slice_)
    return Expected(reason=Reason.NO_DRIVER, names=(DRIVER,), fixable=False)


@fault()
def _slices_of_other_nodes(scene: Scene) -> Expected:
    scene.free_everything()
    for slice_ in scene.slices:
        slice_["spec"]["nodeName"] += ".internal"
    return Expected(reason=Reason.NO_DRIVER, names=(r"\.internal",))


def _of_the_network(scene: Scene, reach: JSON, many: int) -> None:
    """The pod asks for one of so many ports of a fabric."""
    ports = [device(f"port-{number}", {"kind": "port"}) for number in range(many)]
    scene.add(resource_slice(reach, ports, driver=FABRIC, pool="fabric"))
    scene.add(device_class(FABRIC, f"device.driver == '{FABRIC}'"))
    scene.edit(lambda exactly: (exactly.update(deviceClassName=FABRIC, count=1), exactly.pop("selectors", None)))
    for spec in scene.specs:
        spec["devices"].pop("constraints", None)


@fault()
def _network_devices_that_no_node_reaches(scene: Scene) -> Expected:
    term = {"matchExpressions": [{"key": "example.com/rack", "operator": "In", "values": ["r9"]}]}
    _of_the_network(scene, {"nodeSelector": {"nodeSelectorTerms": [term]}}, 2)
    return Expected(reason=Reason.NOT_REACHABLE, names=("fabric", r"example\.com/rack"))


@fault()
def _free_network_devices_beyond_a_renamed_label(scene: Scene) -> Expected:
    """All ports that nodes reach are held; those of another pool are for a label that its nodes have under another key."""
    _of_the_network(scene, {"allNodes": True}, 1)
    port = devices_of(request("gpu", FABRIC))
    held = pod("busy", scene.namespace, templates={"gpu": "port"}, on=scene.random.choice(scene.nodes))
    scene.add(*with_claim(held, port, [result("port-0", "fabric", driver=FABRIC)]))
    asked, there = scene.random.choice(
        (
            (("example.com/rack", "r9"), ("example.com/rack-id", "r9")),
            (("example.com/rack", "r9"), ("acme.io/rack", "r9")),
            (("example.com/rack", "r9"), ("example.com/rack", "R-09")),
            (("fabric.example.com/attached", "true"), ("fabric.example.com/attach", "true")),
        )
    )
    for each in scene.gpu_nodes:
        each["metadata"]["labels"][there[0]] = there[1]
    term = {"matchExpressions": [{"key": asked[0], "operator": "In", "values": [asked[1]]}]}
    reach = {"nodeSelector": {"nodeSelectorTerms": [term]}}
    scene.add(resource_slice(reach, [device("port-7", {"kind": "port"})], driver=FABRIC, pool="fabric-r9"))
    label = "=".join(asked)
    return Expected(
        reason=Reason.NOT_REACHABLE,
        names=("fabric-r9", asked[0], "=".join(there), "busy"),
        remedy=f"^label nodes? .* with {label}$",
    )


@fault()
def _device_of_the_network_held_on_a_node_that_is_gone(scene: Scene) -> Expected:
    _of_the_network(scene, {"allNodes": True}, 1)
    port = devices_of(request("gpu", FABRIC))
    lost = pod(
        "lost", scene.namespace, templates={"gpu": "port"}, on="gone-node", priority=scene.random.choice((0, 1000))
    )
    scene.add(*with_claim(lost, port, [result("port-0", "fabric", driver=FABRIC)]))
    return Expected(reason=Reason.IN_USE, names=("lost", "gone-node"), remedy="^force the deletion of pod .*lost")


# --- shares, counters, policies ---


def _split(scene: Scene) -> None:
    """Each node has one card that is cut into slices of a counter set; the pod asks for the large part."""
    scene.free_everything()
    for slice_ in scene.slices:
        scene.objects.remove(slice_)
    for where in scene.nodes:
        counters = [{"name": "card-0", "counters": {"slices": {"value": "7"}}}]
        parts = [
            device(
                name,
                {"type": "gpu", "profile": profile},
                consumesCounters=[{"counterSet": "card-0", "counters": {"slices": {"value": str(size)}}}],
            )
            for name, profile, size in (*((f"small-{n}", "1g", 1) for n in range(6)), ("large-0", "3g", 4))
        ]
        scene.add(resource_slice(where, None, slices=2, suffix="counters", sharedCounters=counters))
        scene.add(resource_slice(where, parts, slices=2))
    scene.edit(lambda exactly: exactly.update(count=1))
    scene.select(f"{ATTRIBUTES}.profile == '3g'")


@fault()
def _counters_used_up(scene: Scene) -> Expected:
    _split(scene)
    for where in scene.nodes:
        scene.add(*_held(scene, f"busy-{where}", where, *(f"small-{number}" for number in range(5))))
    return Expected(reason=Reason.COUNTERS, names=(r"\b2 of 7\b", r"\b4\b", "slices"), remedy="busy")


@fault()
def _counters_switched_off(scene: Scene) -> Expected:
    _split(scene)
    scene.gates = ("DRAPartitionableDevices=false",)
    return Expected(reason=Reason.FEATURE, names=("DRAPartitionableDevices",), remedy="DRAPartitionableDevices")


@fault()
def _incompatible_with_what_is_allocated(scene: Scene) -> Expected:
    _split(scene)
    scene.gates = ("DRADeviceCompatibilityGroups=true",)
    for slice_ in scene.slices:
        for each in slice_["spec"].get("devices", ()):
            each["consumesCounters"][0]["compatibilityGroups"] = ["mig" if "small" in each["name"] else "mps"]
    for where in scene.nodes:
        scene.add(*_held(scene, f"busy-{where}", where, "small-0"))
    return Expected(reason=Reason.COUNTERS, names=("busy",), remedy="busy")


def _shared(scene: Scene, asked: str, policy: JSON) -> None:
    """Cards whose memory is given out in parts."""
    scene.free_everything()
    scene.edit(lambda exactly: exactly.update(count=1, capacity={"requests": {"memory": asked}}))
    for slice_ in scene.slices:
        for each in slice_["spec"]["devices"]:
            each["allowMultipleAllocations"] = True
            each["capacity"]["memory"] = {"value": "80Gi", "requestPolicy": policy}


@fault()
def _shares_used_up(scene: Scene) -> Expected:
    _shared(scene, "16Gi", {"default": "1Gi", "validRange": {"min": "1Gi"}})
    for where in scene.nodes:
        for number in range(scene.each):
            spec = devices_of(request("gpu", scene.class_name, capacity={"requests": {"memory": "70Gi"}}))
            running = pod(f"busy-{where}-{number}", scene.namespace, templates={"gpu": "other"}, on=where)
            share = {"consumedCapacity": {"memory": "70Gi"}, "shareID": uid_of("share", where, str(number))}
            scene.add(*with_claim(running, spec, [result(f"gpu-{number}", where, **share)], on_node(where)))
    return Expected(reason=Reason.CAPACITY, names=("memory", "10Gi", "16Gi"))


@fault()
def _rounded_up_past_what_is_left(scene: Scene) -> Expected:
    _shared(scene, "10Gi", {"default": "5Gi", "validValues": ["5Gi", "20Gi", "40Gi"]})
    for where in scene.nodes:
        for number in range(scene.each):
            for part, amount in enumerate(("40Gi", "20Gi", "5Gi")):
                spec = devices_of(request("gpu", scene.class_name, capacity={"requests": {"memory": amount}}))
                name = f"busy-{where}-{number}-{part}"
                running = pod(name, scene.namespace, templates={"gpu": "other"}, on=where)
                share = {"consumedCapacity": {"memory": amount}, "shareID": uid_of("share", where, f"{number}-{part}")}
                scene.add(*with_claim(running, spec, [result(f"gpu-{number}", where, **share)], on_node(where)))
    return Expected(reason=Reason.CAPACITY, names=("15Gi left of 80Gi", "20Gi", "rounded up"), remedy=r"\b5Gi")


@fault()
def _value_that_the_policy_does_not_allow(scene: Scene) -> Expected:
    _shared(scene, "48Gi", {"default": "10Gi", "validValues": ["10Gi", "20Gi", "40Gi"]})
    return Expected(reason=Reason.CAPACITY, names=("48Gi", "40Gi"), remedy="40Gi")


@fault()
def _above_the_range_of_the_policy(scene: Scene) -> Expected:
    _shared(scene, "40Gi", {"default": "1Gi", "validRange": {"min": "1Gi", "max": "32Gi", "step": "1Gi"}})
    return Expected(reason=Reason.CAPACITY, names=("40Gi", "32Gi"), remedy="32Gi")


@fault()
def _more_than_a_device_has(scene: Scene) -> Expected:
    _shared(scene, "100Gi", {"default": "1Gi", "validRange": {"min": "1Gi"}})
    return Expected(reason=Reason.CAPACITY, names=("100Gi", "80Gi"), remedy="80Gi")


@fault()
def _capacity_that_devices_do_not_have(scene: Scene) -> Expected:
    scene.free_everything()
    scene.edit(lambda exactly: exactly.update(count=1, capacity={"requests": {"bandwidth": "1G"}}))
    return Expected(reason=Reason.CAPACITY, names=("bandwidth",))


@fault()
def _capacity_requests_switched_off(scene: Scene) -> Expected:
    _shared(scene, "16Gi", {"default": "1Gi", "validRange": {"min": "1Gi"}})
    scene.gates = ("DRAConsumableCapacity=false",)
    return Expected(reason=Reason.FEATURE, names=("DRAConsumableCapacity",), remedy="DRAConsumableCapacity")


# --- binding conditions ---


def _with_conditions(scene: Scene, *conditions: JSON) -> str:
    """The claim is allocated on the first node, and its device is said to be in some conditions."""
    scene.free_everything()
    where = scene.nodes[0]
    named = {
        "bindingConditions": [f"{DRIVER}/attached"],
        "bindingFailureConditions": [f"{DRIVER}/failed"],
    }
    for slice_ in scene.slices:
        for each in slice_["spec"]["devices"]:
            each |= named
    own = scene.get("ResourceClaim", scene.claim_name)
    results = [result(f"gpu-{number}", where, **named) for number in range(scene.count)]
    own["status"] = {
        "allocation": {
            "devices": {"results": results},
            "nodeSelector": on_node(where),
            "allocationTimestamp": "2026-09-14T08:58:00Z",
        },
        "reservedFor": [consumer(scene.name, scene.namespace)],
        "devices": [
            {"driver": DRIVER, "pool": where, "device": f"gpu-{number}", "conditions": list(conditions)}
            for number in range(scene.count)
        ],
    }
    return where


@fault()
def _binding_conditions_pending(scene: Scene) -> Expected:
    _with_conditions(scene)
    return Expected(reason=Reason.BINDING_CONDITIONS, names=("attached",))


@fault()
def _binding_failed(scene: Scene) -> Expected:
    said = {"reason": "NoCarrier", "message": "port 4 has no carrier", "lastTransitionTime": CREATED}
    _with_conditions(scene, {"type": f"{DRIVER}/failed", "status": "True", **said})
    return Expected(reason=Reason.BINDING_CONDITIONS, names=("failed", "port 4 has no carrier"), fixable=False)


@fault()
def _binding_conditions_switched_off(scene: Scene) -> Expected:
    scene.free_everything()
    for slice_ in scene.slices:
        for each in slice_["spec"]["devices"]:
            each["bindingConditions"] = [f"{DRIVER}/attached"]
            each["bindingFailureConditions"] = [f"{DRIVER}/failed"]
    scene.gates = ("DRADeviceBindingConditions=false",)
    return Expected(reason=Reason.FEATURE, names=("DRADeviceBindingConditions",), then="waiting for binding conditions")


# --- nodes ---


def _without_wishes(scene: Scene) -> None:
    """The pod may be on all nodes."""
    for wish in ("nodeSelector", "affinity"):
        scene.pod["spec"].pop(wish, None)


@fault()
def _nodes_cordoned(scene: Scene) -> Expected:
    for each in scene.gpu_nodes:
        each["spec"] |= {
            "unschedulable": True,
            "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
        }
    return Expected(reason=Reason.CORDONED, names=("cordoned", scene.nodes[0]), remedy="uncordon")


@fault()
def _nodes_tainted(scene: Scene) -> Expected:
    effect = scene.random.choice(("NoSchedule", "NoExecute"))
    for each in scene.gpu_nodes:
        each["spec"]["taints"] = [{"key": "nvidia.com/gpu", "value": "present", "effect": effect}]
    return Expected(reason=Reason.NODE_TAINT, names=("nvidia.com/gpu",), remedy="tolerate")


@fault()
def _nodes_cordoned_or_tainted(scene: Scene) -> Expected:
    scene.free_everything()
    for number, each in enumerate(scene.gpu_nodes):
        if number % 2:
            each["spec"]["taints"] = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
        else:
            each["spec"]["unschedulable"] = True
    both = len(scene.nodes) > 1
    return Expected(
        reason=Reason.SEVERAL if both else Reason.CORDONED,
        names=("cordoned", *(("taint.*nvidia.com/gpu",) if both else ())),
    )


@fault()
def _nodes_not_ready(scene: Scene) -> Expected:
    for each in scene.gpu_nodes:
        key = "node.kubernetes.io/unreachable"
        each["spec"]["taints"] = [{"key": key, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        each["status"]["conditions"][0] |= {"status": "Unknown", "reason": "NodeStatusUnknown"}
    scene.pod["spec"]["tolerations"] = []
    return Expected(reason=Reason.NODE_NOT_READY, names=("not ready", scene.nodes[0]), no_remedy="^tolerate")


@fault()
def _nodes_short_of_disk(scene: Scene) -> Expected:
    for each in scene.gpu_nodes:
        each["spec"]["taints"] = [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]
    return Expected(reason=Reason.NODE_TAINT, names=("disk", scene.nodes[0]), no_remedy="^tolerate")


@fault()
def _nodes_that_nobody_has_made_ready(scene: Scene) -> Expected:
    key, remedy = scene.random.choice(
        (
            ("node.cloudprovider.kubernetes.io/uninitialized", "cloud controller manager"),
            ("node.cilium.io/agent-not-ready", "Cilium"),
            ("ebs.csi.aws.com/agent-not-ready", "ebs.csi.aws.com"),
        )
    )
    for each in scene.gpu_nodes:
        each["spec"]["taints"] = [{"key": key, "effect": "NoSchedule"}]
    return Expected(reason=Reason.NODE_TAINT, names=(key,), remedy=remedy, no_remedy="tolerate")


@fault()
def _nodes_that_are_about_to_go(scene: Scene) -> Expected:
    key = scene.random.choice(("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"))
    for each in scene.gpu_nodes:
        each["spec"]["taints"] = [{"key": key, "effect": "NoSchedule"}]
    return Expected(reason=Reason.NODE_TAINT, names=(key, "about to be removed"), remedy="add one node")


@fault()
def _node_selector_has_another_value(scene: Scene) -> Expected:
    scene.pod["spec"]["nodeSelector"] = {"accelerator": "nvidia-h100"}
    return Expected(reason=Reason.AFFINITY, names=("accelerator", "nvidia-h100"), remedy="accelerator")


@fault()
def _label_removed_from_nodes(scene: Scene) -> Expected:
    scene.pod["spec"]["nodeSelector"] = {"accelerator": "nvidia"}
    for each in scene.gpu_nodes:
        del each["metadata"]["labels"]["accelerator"]
    return Expected(reason=Reason.AFFINITY, names=("accelerator",))


@fault()
def _zone_without_nodes(scene: Scene) -> Expected:
    scene.pod["spec"]["nodeSelector"] = {ZONE: "c"}
    return Expected(reason=Reason.AFFINITY, names=("zone", r"\bc\b"), no_remedy="label")


@fault()
def _affinity_to_nodes_without_devices(scene: Scene) -> Expected:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["c", "d"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    scene.pod["spec"]["affinity"] = {"nodeAffinity": required}
    return Expected(reason=Reason.AFFINITY, names=("zone",), no_remedy="label")


@fault()
def _affinity_to_nodes_that_are_full(scene: Scene) -> Expected:
    where = f"{scene.nodes[0]}-z"
    labels = {"kubernetes.io/hostname": where, ZONE: "z", "kubernetes.io/os": "linux", "accelerator": "nvidia"}
    like = copy.deepcopy(scene.gpu_nodes[0])
    like["metadata"] |= {"name": where, "uid": uid_of("Node", "", where), "labels": labels}
    scene.add(like)
    for there in [each for each in scene.all("ResourceSlice") if each["spec"]["nodeName"] == scene.nodes[0]]:
        slice_ = copy.deepcopy(there)
        name = f"{where}-{slice_['spec']['driver']}"
        slice_["metadata"] |= {"name": name, "uid": uid_of("ResourceSlice", "", name)}
        slice_["metadata"]["ownerReferences"][0] |= {"name": where, "uid": uid_of("Node", "", where)}
        slice_["spec"] |= {"nodeName": where, "pool": {"name": where, "generation": 1, "resourceSliceCount": 1}}
        scene.add(slice_)
    for number in range(scene.each):
        scene.add(*_held(scene, f"busy-{number}", where, f"gpu-{number}"))
    scene.pod["spec"]["nodeSelector"] = {ZONE: "z"}
    return Expected(reason=Reason.IN_USE, names=("busy",), remedy="busy", no_remedy="label|select")


@fault()
def _cpu_used_up(scene: Scene) -> Expected:
    for where in scene.nodes:
        scene.add(pod(f"etl-{where}", scene.namespace, requests={"cpu": "31"}, on=where))
    return Expected(reason=Reason.RESOURCES, names=("cpu",), remedy="etl|cpu")


@fault()
def _memory_larger_than_any_node(scene: Scene) -> Expected:
    scene.pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = "512Gi"
    return Expected(reason=Reason.RESOURCES, names=("memory", "512Gi"), remedy="memory")


@fault()
def _no_room_for_pods(scene: Scene) -> Expected:
    scene.free_everything()
    for each in scene.gpu_nodes:
        where = each["metadata"]["name"]
        scene.add(pod(f"etl-{where}", scene.namespace, on=where))
        there = [other for other in scene.all("Pod") if other["spec"].get("nodeName") == where]
        number = str(sum(other["status"]["phase"] == "Running" for other in there))
        each["status"]["allocatable"]["pods"] = each["status"]["capacity"]["pods"] = number
    return Expected(reason=Reason.RESOURCES, names=("pods",), remedy="etl")


@fault()
def _cpu_claimed_as_a_device(scene: Scene) -> Expected:
    scene.gates = ("DRANodeAllocatableResources=true",)
    scene.free_everything()
    scene.edit(lambda exactly: exactly.update(count=1, capacity={"requests": {"cpu": "24"}}))
    for slice_ in scene.slices:
        for each in slice_["spec"]["devices"]:
            each |= {
                "allowMultipleAllocations": True,
                "capacity": {"cpu": {"value": "64", "requestPolicy": {"default": "1", "validRange": {"min": "1"}}}},
                "nodeAllocatableResources": {"cpu": {"mapping": {"capacityKey": "cpu", "capacityMultiplier": "1"}}},
            }
    for where in scene.nodes:
        scene.add(pod(f"etl-{where}", scene.namespace, requests={"cpu": "16"}, on=where))
    return Expected(reason=Reason.RESOURCES, names=("cpu",), remedy="etl")


@fault()
def _host_port_taken(scene: Scene) -> Expected:
    port = [{"containerPort": 8000, "hostPort": 8000, "protocol": "TCP"}]
    scene.pod["spec"]["containers"][0]["ports"] = port
    for where in scene.nodes:
        other = pod(f"serve-{where}", scene.namespace, on=where)
        other["spec"]["containers"][0]["ports"] = port
        scene.add(other)
    return Expected(reason=Reason.PORTS, names=("8000",), remedy="serve")


def _labelled(scene: Scene) -> None:
    scene.pod["metadata"]["labels"] = {"app": "web"}
    for where in scene.nodes:
        scene.add(pod(f"web-{where}", scene.namespace, on=where, labels={"app": "web"}))


@fault()
def _anti_affinity_to_own_replicas(scene: Scene) -> Expected:
    _labelled(scene)
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    scene.pod["spec"]["affinity"] = {"podAntiAffinity": anti}
    return Expected(reason=Reason.NEIGHBOURS, names=("anti-affinity",))


@fault()
def _spread_over_zones_without_devices(scene: Scene) -> Expected:
    _labelled(scene)
    _without_wishes(scene)
    scene.add(copy.deepcopy(scene.gpu_nodes[0]))
    empty = scene.objects[-1]
    empty["metadata"] |= {"name": "cpu-z", "uid": uid_of("Node", "", "cpu-z")}
    empty["metadata"]["labels"] = {"kubernetes.io/hostname": "cpu-z", ZONE: "z"}
    for each in scene.all("Node"):
        each["metadata"]["labels"].setdefault(ZONE, "a")
    scene.pod["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
    return Expected(reason=Reason.NEIGHBOURS, names=("spread", "zone"), no_remedy="label")


# --- volumes ---


def _volume(scene: Scene, **spec: Any) -> None:
    claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Ti"}}} | spec
    volume = thing("v1", "PersistentVolumeClaim", "data", scene.namespace, spec=claim_spec, status={"phase": "Bound"})
    if "volumeName" in spec:
        volume["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    scene.add(volume)


def _mounted(scene: Scene, name: str = "data") -> None:
    scene.pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


@fault()
def _volume_claim_missing(scene: Scene) -> Expected:
    _mounted(scene, "dataset")
    return Expected(reason=Reason.VOLUME, names=("dataset", "not exist"), fixable=False)


def _bound_volume(scene: Scene, key: str, value: str) -> None:
    """A volume for nodes with a label."""
    _volume(scene, volumeName="pv-1", storageClassName="gp3", volumeMode="Filesystem")
    _mounted(scene)
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "data", "namespace": scene.namespace}
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Ti"},
        "claimRef": reference | {"uid": uid_of("PersistentVolumeClaim", scene.namespace, "data")},
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "gp3",
        "volumeMode": "Filesystem",
    }
    scene.add(thing("v1", "PersistentVolume", "pv-1", spec=spec, status={"phase": "Bound"}))


@fault()
def _volume_in_another_zone(scene: Scene) -> Expected:
    _bound_volume(scene, ZONE, "z")
    return Expected(reason=Reason.VOLUME, names=("data|pv-1", "zone"), fixable=False)


@fault()
def _volume_on_a_node_that_is_gone(scene: Scene) -> Expected:
    _bound_volume(scene, "kubernetes.io/hostname", "db-3")
    return Expected(reason=Reason.VOLUME, names=("pv-1", "node db-3", "no longer"), fixable=False)


# --- claims ---


@fault(CLAIM)
def _claim_missing(scene: Scene) -> Expected:
    scene.pod["spec"]["resourceClaims"][0]["resourceClaimName"] = "share-gpu"
    return Expected(reason=Reason.CLAIM_MISSING, names=("share-gpu", "not exist"), remedy="shared-gpu")


@fault(TEMPLATE)
def _template_missing(scene: Scene) -> Expected:
    wrong = f"{scene.template_name}s"
    scene.pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = wrong
    del scene.pod["status"]["resourceClaimStatuses"]
    scene.drop("ResourceClaim", scene.claim_name)
    return Expected(reason=Reason.TEMPLATE_MISSING, names=(wrong, "not exist"), remedy=scene.template_name)


@fault(TEMPLATE)
def _template_in_another_namespace(scene: Scene) -> Expected:
    del scene.pod["status"]["resourceClaimStatuses"]
    scene.drop("ResourceClaim", scene.claim_name)
    there = scene.get("ResourceClaimTemplate", scene.template_name)
    scene.drop("ResourceClaimTemplate", scene.template_name)
    scene.add(template_of(scene.template_name, there["spec"]["spec"], "team-b"))
    return Expected(reason=Reason.TEMPLATE_MISSING, names=(scene.template_name, "team-b"))


@fault(TEMPLATE)
def _claim_name_instead_of_template_name(scene: Scene) -> Expected:
    scene.pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": scene.template_name}]
    del scene.pod["status"]["resourceClaimStatuses"]
    scene.drop("ResourceClaim", scene.claim_name)
    return Expected(
        reason=Reason.CLAIM_MISSING, names=(scene.template_name, "resourceClaimTemplateName"), remedy="Template"
    )


@fault(CLAIM)
def _claim_that_another_pod_uses_being_deleted(scene: Scene) -> Expected:
    scene.free_everything()
    found = scene.get("ResourceClaim", scene.claim_name)
    found["metadata"] |= {
        "deletionTimestamp": "2026-09-14T08:30:00Z",
        "finalizers": ["resource.kubernetes.io/delete-protection"],
    }
    scene.add(pod("first", scene.namespace, claims={"gpu": scene.claim_name}, on=scene.nodes[0]))
    found["status"] = {"reservedFor": [consumer("first", scene.namespace)]}
    return Expected(
        reason=Reason.CLAIM_BEING_DELETED, names=(scene.claim_name, "deleted", "first"), remedy="second claim"
    )


@fault(CLAIM)
def _claim_being_deleted(scene: Scene) -> Expected:
    scene.get("ResourceClaim", scene.claim_name)["metadata"]["deletionTimestamp"] = "2026-09-14T08:30:00Z"
    return Expected(reason=Reason.CLAIM_BEING_DELETED, names=(scene.claim_name, "deleted"))


def _allocated(scene: Scene, where: str, users: list[JSON]) -> None:
    own = scene.get("ResourceClaim", scene.claim_name)
    results = [result(f"gpu-{number}", where) for number in range(scene.count)]
    own["status"] = {
        "allocation": {"devices": {"results": results}, "nodeSelector": on_node(where)},
        "reservedFor": users,
    }


@fault(CLAIM)
def _claim_has_256_users(scene: Scene) -> Expected:
    scene.free_everything()
    names = [f"user-{number}" for number in range(256)]
    _allocated(scene, scene.nodes[0], [consumer(name, scene.namespace) for name in names])
    scene.add(pod(names[0], scene.namespace, claims={"gpu": scene.claim_name}, on=scene.nodes[0]))
    return Expected(reason=Reason.CLAIM_FULL, names=("256", scene.claim_name))


@fault(CLAIM)
def _claim_on_a_cordoned_node(scene: Scene) -> Expected:
    scene.free_everything()
    where = scene.nodes[0]
    _allocated(scene, where, [consumer("first", scene.namespace)])
    scene.add(pod("first", scene.namespace, claims={"gpu": scene.claim_name}, on=where))
    scene.get("Node", where)["spec"]["unschedulable"] = True
    # On the only node, that it is cordoned is all that matters.
    reason = Reason.PINNED if len(scene.all("Node")) > 1 else Reason.CORDONED
    return Expected(reason=reason, names=(scene.claim_name, where, "cordoned"))


@fault(CLAIM)
def _claim_on_a_node_that_is_gone(scene: Scene) -> Expected:
    scene.free_everything()
    _allocated(scene, "gone-1", [consumer(scene.name, scene.namespace)])
    return Expected(reason=Reason.PINNED, names=(scene.claim_name, "gone-1"))


@fault(TEMPLATE)
def _quota_used_up(scene: Scene) -> Expected:
    del scene.pod["status"]["resourceClaimStatuses"]
    scene.drop("ResourceClaim", scene.claim_name)
    others = len(scene.held)
    hard = {"count/resourceclaims.resource.k8s.io": str(others)}
    status = {"hard": hard, "used": dict(hard)}
    scene.add(thing("v1", "ResourceQuota", "gpu-quota", scene.namespace, spec={"hard": hard}, status=status))
    return Expected(reason=Reason.QUOTA, names=("gpu-quota",), remedy="gpu-quota")


@fault(TEMPLATE)
def _admin_access_without_the_label(scene: Scene) -> Expected:
    del scene.pod["status"]["resourceClaimStatuses"]
    scene.drop("ResourceClaim", scene.claim_name)
    scene.edit(lambda exactly: exactly.update(adminAccess=True))
    return Expected(reason=Reason.ADMIN_ACCESS, names=("adminAccess", scene.namespace), remedy="label")


@fault()
def _no_alternative_fits(scene: Scene) -> Expected:
    for spec in scene.specs:
        spec["devices"]["requests"] = [
            alternatives(
                "gpu",
                request("b300", scene.class_name, f"{ATTRIBUTES}.productName == 'NVIDIA B300'"),
                request("h200", scene.class_name, f"{ATTRIBUTES}.productName == 'NVIDIA H200'"),
            )
        ]
    return Expected(reason=Reason.NO_DEVICES, names=("b300", "h200"))


@fault()
def _devices_on_different_nodes(scene: Scene) -> Expected:
    scene.free_everything()
    nics = [device("nic-0", {"kind": "nic"})]
    labels = {"kubernetes.io/hostname": "net-1"}
    empty = copy.deepcopy(scene.gpu_nodes[0])
    empty["metadata"] |= {"name": "net-1", "uid": uid_of("Node", "", "net-1"), "labels": labels}
    scene.add(empty, resource_slice("net-1", nics, driver=FABRIC))
    scene.add(device_class(FABRIC, f"device.driver == '{FABRIC}'"))
    for spec in scene.specs:
        spec["devices"]["requests"].append(request("fabric", FABRIC))
    _without_wishes(scene)
    return Expected(reason=Reason.TOGETHER, names=("fabric", "net-1"), fixable=False)


# --- before the scheduler looks ---


@fault()
def _scheduling_gate(scene: Scene) -> Expected:
    scene.pod["spec"]["schedulingGates"] = [{"name": "example.com/warm-up"}]
    return Expected(reason=Reason.SCHEDULING_GATE, names=("example.com/warm-up",), remedy="gate")


@fault()
def _not_admitted_by_a_queue_manager(scene: Scene) -> Expected:
    gate = scene.random.choice(
        ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology", "scheduling.volcano.sh/queue-allocation")
    )
    scene.pod["spec"]["schedulingGates"] = [{"name": gate}]
    return Expected(reason=Reason.SCHEDULING_GATE, names=(gate,), fixable=False)


@fault()
def _no_such_scheduler(scene: Scene) -> Expected:
    scene.pod["spec"]["schedulerName"] = "kai-scheduler"
    # Who has refused the pod is there.
    scene.pod["status"].pop("conditions", None)
    return Expected(reason=Reason.NO_SUCH_SCHEDULER, names=("kai-scheduler",), remedy="default-scheduler")


@fault()
def _scheduler_scaled_to_none(scene: Scene) -> Expected:
    scene.pod["spec"]["schedulerName"] = "kai-scheduler"
    scene.pod["status"].pop("conditions", None)
    scene.add(_scaled_to_none("kai-scheduler-default", "kai-scheduler"))
    return Expected(
        reason=Reason.COMPONENT_DOWN, names=("kai-scheduler/kai-scheduler-default", "scaled to 0"), fixable=False
    )


@fault(TEMPLATE)
def _claim_of_an_earlier_template(scene: Scene) -> Expected:
    template, claimed = scene.specs
    claimed["devices"]["requests"][0]["exactly"]["deviceClassName"] = "old-gpu"
    assert template["devices"]["requests"][0]["exactly"]["deviceClassName"] != "old-gpu"
    metadata = scene.get("ResourceClaimTemplate", scene.template_name)["metadata"]
    metadata["creationTimestamp"] = "2026-09-14T08:45:00Z"
    return Expected(
        reason=Reason.CLASS_MISSING,
        names=(scene.claim_name, f"earlier ResourceClaimTemplate {scene.namespace}/{scene.template_name}"),
        remedy="^recreate pod",
    )


@fault()
def _preempted_pods_are_terminating(scene: Scene) -> Expected:
    for where in scene.nodes:
        victim = pod(f"victim-{where}", "team-b", on=where, requests={"cpu": "31"}, priority=-10)
        victim["metadata"] |= {"deletionTimestamp": "2026-09-14T09:00:20Z", "deletionGracePeriodSeconds": 30}
        scene.add(victim)
    scene.pod["status"]["nominatedNodeName"] = scene.nodes[0]
    return Expected(
        reason=Reason.WAITS_FOR_ROOM, names=(f"victim-{scene.nodes[0]}", "terminating"), remedy="^wait until"
    )


@fault()
def _being_deleted(scene: Scene) -> Expected:
    scene.pod["metadata"] |= {"deletionTimestamp": "2026-09-14T08:30:00Z", "finalizers": ["example.com/cleanup"]}
    return Expected(reason=Reason.BEING_DELETED, names=("deleted",), fixable=False)


# --- groups ---


def _gang(scene: Scene, pods: int, min_count: int, priority: int = 0, **spec: Any) -> None:
    """Instead of the pod, a gang whose pods need one device each."""
    scene.free_everything()
    scene.objects = [
        each for each in scene.objects if each["kind"] not in ("Pod", "ResourceClaim", "ResourceClaimTemplate")
    ]
    scene.gates = (*scene.gates, "GenericWorkload=true")
    scene.target = "podgroup/mpi"
    claim_spec = devices_of(request("gpu", scene.class_name))
    scene.add(template_of("one-gpu", claim_spec, scene.namespace))
    scene.add(group_of("mpi", scene.namespace, min_count, **spec))
    for number in range(pods):
        member = pod(
            f"mpi-{number}",
            scene.namespace,
            templates={"gpu": "one-gpu"},
            schedulingGroup={"podGroupName": "mpi"},
            priority=priority,
        )
        scene.add(*with_claim(member, claim_spec))


@fault()
def _gang_with_too_few_pods(scene: Scene) -> Expected:
    total = scene.each * len(scene.nodes)
    _gang(scene, total, total + 1)
    return Expected(reason=Reason.GROUP_INCOMPLETE, names=(rf"\b{total}\b", rf"\b{total + 1}\b"))


@fault()
def _gang_that_fits_in_part(scene: Scene) -> Expected:
    total = scene.each * len(scene.nodes)
    _gang(scene, total, total)
    scene.add(*_held(scene, "busy", scene.nodes[0], "gpu-0"))
    return Expected(reason=Reason.GANG, names=("busy", rf"\b{total - 1}\b", rf"\b{total}\b"), remedy="busy")


@fault()
def _gang_larger_than_the_cluster(scene: Scene) -> Expected:
    total = scene.each * len(scene.nodes)
    _gang(scene, total + 2, total + 2)
    return Expected(reason=Reason.GANG, names=(rf"\b{total}\b", rf"\b{total + 2}\b"))


@fault()
def _group_has_another_priority(scene: Scene) -> Expected:
    _gang(scene, 1, 1, priority=0)
    scene.get("PodGroup", "mpi")["spec"] |= {"priority": 1000, "priorityClassName": "high"}
    return Expected(reason=Reason.GROUP_PRIORITY, names=("mpi", r"\b1000\b", r"\b0\b"), remedy="priority")


@fault()
def _gang_in_one_rack(scene: Scene) -> Expected:
    total = scene.each * len(scene.nodes)
    _gang(scene, total, total, schedulingConstraints={"topology": [{"key": "example.com/rack"}]})
    scene.gates = (*scene.gates, "TopologyAwareWorkloadScheduling=true")
    for number, each in enumerate(scene.gpu_nodes):
        each["metadata"]["labels"]["example.com/rack"] = f"r{number}"
    # One node holds all of it: then the gang has one pod too many.
    if len(scene.nodes) == 1:
        _gang_again(scene, total + 1)
    return Expected(reason=Reason.GANG, names=("example.com/rack",))


def _gang_again(scene: Scene, pods: int) -> None:
    scene.get("PodGroup", "mpi")["spec"]["schedulingPolicy"]["gang"]["minCount"] = pods
    member = copy.deepcopy(scene.get("Pod", "mpi-0"))
    own = copy.deepcopy(scene.get("ResourceClaim", "mpi-0-gpu-q4t9z"))
    text = f"mpi-{pods - 1}"
    uid = uid_of("Pod", scene.namespace, text)
    member["metadata"] |= {"name": text, "uid": uid}
    member["status"]["resourceClaimStatuses"][0]["resourceClaimName"] = f"{text}-gpu-q4t9z"
    own["metadata"] |= {"name": f"{text}-gpu-q4t9z", "uid": uid_of("ResourceClaim", scene.namespace, text)}
    own["metadata"]["ownerReferences"][0] |= {"name": text, "uid": uid}
    scene.add(member, own)


@fault()
def _group_missing(scene: Scene) -> Expected:
    scene.gates = ("GenericWorkload=true",)
    scene.pod["spec"]["schedulingGroup"] = {"podGroupName": "mpi"}
    return Expected(reason=Reason.GROUP_MISSING, names=("mpi", "not exist"))


# --- components that have to act, and what is one object away ---


def _scaled_to_none(name: str, namespace: str = "team-b") -> JSON:
    """A Deployment whose pods somebody has stopped."""
    labels = {"app": name}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "example.com/x:1"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": pods}
    return thing("apps/v1", "Deployment", name, namespace, spec=spec, status={})


@fault()
def _gate_of_a_component_scaled_to_none(scene: Scene) -> Expected:
    scene.pod["spec"]["schedulingGates"] = [{"name": "data.example.com/shards-copied"}]
    scene.add(_scaled_to_none("shard-copier"))
    return Expected(
        reason=Reason.SCHEDULING_GATE,
        names=("data.example.com/shards-copied", "team-b/shard-copier", "scaled to 0"),
        remedy="scale Deployment team-b/shard-copier",
    )


@fault()
def _held_for_objects_of_a_component_scaled_to_none(scene: Scene) -> Expected:
    scene.free_everything()
    for where in scene.nodes:
        devices = [f"gpu-{number}" for number in range(scene.each)]
        spec = devices_of(request("gpu", scene.class_name, count=len(devices)))
        user = {"apiGroup": "labs.example.com", "resource": "workbenches", "name": where, "uid": uid_of("", "", where)}
        results = [result(each, where) for each in devices]
        scene.add(claim(f"bench-{where}", spec, "team-b", results=results, where=on_node(where), users=[user]))
    scene.add(_scaled_to_none("workbench-operator"))
    return Expected(
        reason=Reason.IN_USE, names=("team-b/bench-", "workbench-operator", "scaled to 0"), remedy="workbench-operator"
    )


@fault(TEMPLATE)
def _quota_charged_for_claims_that_nobody_uses(scene: Scene) -> Expected:
    del scene.pod["status"]["resourceClaimStatuses"]
    scene.drop("ResourceClaim", scene.claim_name)
    scene.add(claim("left-over", devices_of(request("gpu", scene.class_name)), scene.namespace))
    hard = {"count/resourceclaims.resource.k8s.io": str(len(scene.held) + 1)}
    status = {"hard": hard, "used": dict(hard)}
    scene.add(thing("v1", "ResourceQuota", "gpu-quota", scene.namespace, spec={"hard": hard}, status=status))
    return Expected(reason=Reason.QUOTA, names=("gpu-quota", "left-over"), remedy="delete ResourceClaim .*left-over")


@fault()
def _kept_away_by_pods_of_another_namespace(scene: Scene) -> Expected:
    scene.pod["metadata"]["labels"] = {"noise": "loud"}
    term = {
        "labelSelector": {"matchLabels": {"noise": "loud"}},
        "namespaceSelector": {},
        "topologyKey": "kubernetes.io/hostname",
    }
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for where in scene.nodes:
        scene.add(pod(f"studio-{where}", "team-b", on=where, affinity=copy.deepcopy(anti)))
    return Expected(
        reason=Reason.NEIGHBOURS, names=("team-b/studio-", "noise=loud", "other namespaces"), remedy="namespaceSelector"
    )


@fault()
def _counter_sets_that_shrank(scene: Scene) -> Expected:
    _split(scene)
    for each in scene.slices:
        for counters in each["spec"].get("sharedCounters", ()):
            counters["counters"]["slices"]["value"] = "1"
            each["spec"]["sharedCounters"] = [counters, {"name": "card-1", "counters": {"slices": {"value": "7"}}}]
        for found in each["spec"].get("devices", ()):
            if found["name"].startswith("large"):
                found["consumesCounters"][0]["counterSet"] = "card-1"
    for where in scene.nodes:
        scene.add(*_held(scene, f"busy-{where}", where, "small-0", "small-1"))
    return Expected(reason=Reason.COUNTERS, names=("card-0 is overcommitted", r"2 of 1\b"), remedy="busy")


def _second_node(scene: Scene) -> None:
    """One more node like the only one, with all that drivers publish for it."""
    if len(scene.nodes) > 1:
        return
    first, name = scene.nodes[0], "gpu-z"
    twin = copy.deepcopy(scene.gpu_nodes[0])
    twin["metadata"] |= {"name": name, "uid": uid_of("Node", "", name)}
    twin["metadata"]["labels"]["kubernetes.io/hostname"] = name
    scene.add(twin)
    for each in [each for each in scene.all("ResourceSlice") if each["spec"].get("nodeName") == first]:
        scene.add(resource_slice(name, copy.deepcopy(each["spec"]["devices"]), driver=each["spec"]["driver"]))
    scene.nodes.append(name)


@fault()
def _one_pool_name_on_all_nodes(scene: Scene) -> Expected:
    scene.free_everything()
    _second_node(scene)
    for each in scene.slices:
        each["spec"]["pool"]["name"] = "cards"
    devices = [f"gpu-{number}" for number in range(scene.each)]
    held = _held(scene, "busy", scene.nodes[0], *devices)
    for found in held[1]["status"]["allocation"]["devices"]["results"]:
        found["pool"] = "cards"
    scene.add(*held)
    return Expected(
        reason=Reason.POOL_INVALID, names=("pool cards", "same device names", "busy"), remedy="a name of its own"
    )


@fault()
def _node_without_the_label_of_its_rack(scene: Scene) -> Expected:
    _second_node(scene)
    total = scene.each * len(scene.nodes)
    _gang(scene, total, total, schedulingConstraints={"topology": [{"key": "example.com/rack"}]})
    scene.gates = (*scene.gates, "TopologyAwareWorkloadScheduling=true")
    for each in scene.gpu_nodes[:-1]:
        each["metadata"]["labels"]["example.com/rack"] = "r1"
    last = scene.nodes[-1]
    return Expected(
        reason=Reason.GANG, names=("example.com/rack", f"node {last}", "no label"), remedy=f"label node {last} with"
    )


# --- who is at fault, one step further ---


def _owned(object_: JSON, kind: str, name: str, api_version: str = "apps/v1") -> None:
    """A pod that a workload makes."""
    metadata = object_["metadata"]
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid_of(kind, metadata["namespace"], name)}
    metadata["ownerReferences"] = [owner | {"controller": True, "blockOwnerDeletion": True}]


@fault()
def _held_by_pods_that_only_a_sidecar_keeps(scene: Scene) -> Expected:
    for name in scene.fill(restartPolicy="Never"):
        busy = scene.get("Pod", name)
        busy["spec"]["containers"].append({"name": "proxy", "image": "proxy:1", "resources": {}})
        states = {"main": {"terminated": {"exitCode": 0}}, "proxy": {"running": {}}}
        busy["status"]["containerStatuses"] = [
            {"name": each, "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": state}
            for each, state in states.items()
        ]
    return Expected(reason=Reason.IN_USE, names=("busy", "main has ended", "proxy"), remedy="stop container proxy")


@fault()
def _the_rest_is_tainted_by_its_driver(scene: Scene) -> Expected:
    scene.free_everything()
    scene.edit(lambda exactly: exactly.update(count=1))
    key = f"{DRIVER}/xid"
    for slice_ in scene.slices:
        devices = slice_["spec"]["devices"]
        devices[0]["taints"] = [{"key": key, "value": "79", "effect": "NoSchedule", "timeAdded": CREATED}]
        others = [each["name"] for each in devices[1:]]
        where = slice_["spec"]["nodeName"]
        scene.add(*(_held(scene, f"busy-{where}", where, *others) if others else ()))
    return Expected(reason=Reason.TAINT, names=(f"{key}=79",), remedy="repair or reset device gpu-0")


@fault()
def _class_excludes_a_state_of_one_node(scene: Scene) -> Expected:
    scene.free_everything()
    _second_node(scene)
    last = scene.nodes[-1]
    for slice_ in scene.slices:
        for each in slice_["spec"]["devices"]:
            each["attributes"]["rdma"] = {"bool": slice_["spec"]["nodeName"] != last}
    selector = scene.get("DeviceClass", scene.class_name)["spec"]["selectors"][0]["cel"]
    selector["expression"] = f"device.driver == '{DRIVER}' && {ATTRIBUTES}.rdma"
    for where in scene.nodes[:-1]:
        devices = [f"gpu-{number}" for number in range(scene.each)]
        scene.add(*_held(scene, f"busy-{where}", where, *devices))
    return Expected(reason=Reason.IN_USE, names=("busy", f"node {last}", "rdma false"), remedy=f"node {last} have rdma")


@fault()
def _host_port_of_its_own_replicas(scene: Scene) -> Expected:
    port = {"containerPort": 8000, "hostPort": 8000, "protocol": "TCP"}
    waiting = scene.pod
    waiting["spec"]["containers"][0]["ports"] = [dict(port)]
    _owned(waiting, "ReplicaSet", "serve")
    for where in scene.nodes:
        other = pod(f"serve-{where}", scene.namespace, on=where)
        other["spec"]["containers"][0]["ports"] = [dict(port)]
        _owned(other, "ReplicaSet", "serve")
        scene.add(other)
    return Expected(reason=Reason.PORTS, names=("8000", "serve-"), remedy="drop hostPort 8000 of container main")


@fault(TEMPLATE)
def _daemon_asks_for_all_without_admin_access(scene: Scene) -> Expected:
    scene.free_everything()
    _owned(scene.pod, "DaemonSet", "exporter")
    for where in scene.nodes:
        scene.add(*_held(scene, f"busy-{where}", where, "gpu-0"))
    scene.edit(lambda exactly: (exactly.update(allocationMode="All"), exactly.pop("count")))
    return Expected(reason=Reason.IN_USE, names=("all devices", "adminAccess", "busy"), remedy="set adminAccess: true")


@fault()
def _cpu_used_up_by_a_pod_that_fits_elsewhere(scene: Scene) -> Expected:
    scene.add(node("cpu-only"))
    for where in scene.nodes:
        scene.add(pod(f"etl-{where}", "team-b", requests={"cpu": "31"}, on=where))
    return Expected(reason=Reason.RESOURCES, names=("cpu", "etl"), remedy="etl-.* also fits on node")


@fault()
def _node_pool_at_its_limit(scene: Scene) -> Expected:
    amounts = [each for each in scene.objects if each["kind"] == "Node"]
    for each in amounts:
        name = each["metadata"]["name"]
        each["metadata"]["labels"]["karpenter.sh/nodepool"] = "general"
        scene.add(pod(f"etl-{name}", "team-b", requests={"cpu": "31"}, on=name))
    limit = {"cpu": str(32 * len(amounts))}
    spec = {"limits": limit, "template": {"metadata": {}, "spec": {}}}
    scene.add(thing("karpenter.sh/v1", "NodePool", "general", spec=spec, status={"resources": limit}))
    return Expected(
        reason=Reason.RESOURCES,
        names=("cpu", "NodePool general is at its limit"),
        remedy="raise spec.limits of NodePool general|delete pod|ask for at most",
    )
