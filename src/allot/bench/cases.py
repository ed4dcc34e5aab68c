"""The steps of each case of the scheduler benchmark, as data; `run` executes them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from allot.bench import objects
from allot.bench.workloads import Workload

Object = objects.Object
Make = Callable[[int, Workload], Object]

INIT, TEST = "init", "test"


class CreateNodes(msgspec.Struct, frozen=True):
    """Nodes, those without devices first."""

    plain: int
    with_dra: int


class CreateObjects(msgspec.Struct, frozen=True):
    """Create objects one by one. measured: whether this is the measured part."""

    make: Make
    count: int
    namespace: str = ""
    measured: bool = False


class AllocateClaims(msgspec.Struct, frozen=True):
    """Allocate all claims of a namespace without a scheduler, on nodes chosen at random."""

    namespace: str


class CreatePods(msgspec.Struct, frozen=True):
    """Pods, many at a time; ends when they are scheduled, or after the time of a steady state."""

    make: Make
    count: int
    namespace: str
    measured: bool = False
    steady_seconds: float = 0.0


Step = CreateNodes | CreateObjects | AllocateClaims | CreatePods


def steps_of(workload: Workload) -> tuple[Step, ...]:
    """All steps of a workload."""
    steps: list[Step] = [CreateNodes(workload.nodes_without_dra, workload.nodes_with_dra)]
    return (*steps, *_CASES[workload.case](workload))


def _publish(w: Workload) -> list[Step]:
    return [CreateObjects(objects.basic_slice, w.nodes_with_dra, measured=True)]


def _classes() -> CreateObjects:
    return CreateObjects(lambda _index, _workload: objects.device_class(), 1)


def _slices(w: Workload, *makes: Make) -> list[Step]:
    return [CreateObjects(make, w.nodes_with_dra) for make in makes]


def _template(namespace: str) -> CreateObjects:
    return CreateObjects(lambda _index, workload: objects.claim_template(workload), 1, namespace)


def _measured(w: Workload, make: Make = objects.pod_with_template) -> CreatePods:
    return CreatePods(make, w.measure_pods, TEST, measured=True, steady_seconds=w.steady_seconds)


def _after_claims(w: Workload) -> list[Step]:
    """Initial claims, allocated; then pods with claims from a template."""
    claims: list[Step] = [CreateObjects(objects.claim, w.init_claims, INIT), AllocateClaims(INIT)]
    return [*(claims if w.init_claims else []), _template(TEST), _measured(w)]


def _claim_template(w: Workload) -> list[Step]:
    return [*_slices(w, objects.basic_slice), _classes(), *_after_claims(w)]


def _first_available(w: Workload) -> list[Step]:
    nothing = CreateObjects(lambda _i, _w: objects.device_class("no-devices-class", "no-such-driver.cdi.k8s.io"), 1)
    return [*_slices(w, objects.basic_slice), _classes(), nothing, *_after_claims(w)]


def _list_attributes(w: Workload) -> list[Step]:
    return [*_slices(w, objects.list_slice), _classes(), _template(TEST), _measured(w)]


def _claims(w: Workload) -> list[Step]:
    return [
        *_slices(w, objects.basic_slice),
        _classes(),
        CreateObjects(objects.claim, w.init_claims, INIT),
        CreatePods(objects.pod_with_claim, w.init_pods, INIT),
        CreateObjects(objects.claim, w.measure_claims, TEST),
        _measured(w, objects.pod_with_claim),
    ]


def _tainted(w: Workload) -> list[Step]:
    rule = CreateObjects(lambda _index, _workload: objects.taint_rule(), 1)
    return [rule, *_slices(w, objects.basic_slice), _classes(), _template(TEST), _measured(w)]


def _partitions(w: Workload) -> list[Step]:
    return [*_slices(w, objects.counters_slice, objects.partitions_slice), _classes(), *_after_claims(w)]


def _backtracking(w: Workload) -> list[Step]:
    makes = (objects.backtracking_counters_slice, objects.backtracking_devices_slice)
    return [*_slices(w, *makes), _classes(), *_after_claims(w)]


def _consumable(w: Workload) -> list[Step]:
    condition = "device.allowMultipleAllocations == true"
    shared = CreateObjects(lambda _index, _workload: objects.device_class(condition=condition), 1)
    return [
        *_slices(w, objects.shareable_slice),
        shared,
        _template(TEST),
        _template(INIT),
        CreatePods(objects.pod_with_template, w.init_pods, INIT),
        _measured(w),
    ]


def _extended(w: Workload) -> list[Step]:
    explicit = w.extended_resource.startswith("example.com/")

    def make(index: int, workload: Workload) -> Object:
        name = f"{workload.extended_resource}-{index}" if explicit else ""
        return objects.device_class(f"test-class-{index}", extended=name)

    return [
        *_slices(w, objects.basic_slice),
        CreateObjects(make, w.classes),
        CreatePods(objects.pod_with_extended_resource, w.init_pods, INIT),
        _measured(w, objects.pod_with_extended_resource),
    ]


def _scoring(w: Workload) -> list[Step]:
    def make(index: int, workload: Workload) -> Object:
        return objects.device_class(f"scoring-test-class-{index}", extended=workload.extended_resource)

    return [*_slices(w, objects.basic_slice), CreateObjects(make, w.classes), _measured(w, objects.scoring_pod)]


def _groups(w: Workload) -> list[Step]:
    shared = [CreateObjects(objects.network_slice, w.pod_groups), _classes()]
    groups = CreateObjects(objects.pod_group, w.pod_groups, TEST)
    if w.case == "SharedPodGroupResourceClaimTemplate":
        return [*shared, _template(INIT), _template(TEST), groups, _measured(w, objects.group_pod_with_template)]
    claims = CreateObjects(objects.claim, w.pod_groups, TEST)
    return [*shared, claims, groups, _measured(w, objects.group_pod_with_claim)]


_CASES: dict[str, Callable[[Workload], list[Step]]] = {
    "PublishResourceSlices": _publish,
    "SchedulingWithResourceClaimTemplate": _claim_template,
    "SchedulingWithResourceClaimTemplateListAttributes": _list_attributes,
    "SchedulingWithResourceClaim": _claims,
    "DeviceTaintToleration": _tainted,
    "FirstAvailable": _first_available,
    "SharedPodGroupResourceClaim": _groups,
    "SharedPodGroupResourceClaimTemplate": _groups,
    "ExtendedResource": _extended,
    "ExtendedResourceScoring": _scoring,
    "Partitionable": _partitions,
    "PartitionableBacktracking": _backtracking,
    "CompatibilityGroups": _partitions,
    "ConsumableCapacity": _consumable,
}
