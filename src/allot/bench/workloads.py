"""The workloads of Kubernetes' scheduler benchmark for DRA (scheduler_perf, 1.37), and a few larger ones of our own.

Facts only: how many nodes, claims and pods, which gates, what Kubernetes' own CI asks for. What objects are made of is in
`objects`, in which order things are done in `cases`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

import msgspec

PERFORMANCE = ("performance",)
QUICK = ("integration-test", "short")
BOTH = ("integration-test", "performance")
# Not in Kubernetes' list: as its 500-node workloads, on ten times the nodes.
SCALE = ("scale",)

SELECTOR = (
    'device.attributes["test-driver.cdi.k8s.io"].driverVersion.major() >= 1 && '
    'device.capacity["test-driver.cdi.k8s.io"].memory.isGreaterThan(quantity("1Mi"))'
)
_STEADY_SECONDS = 10.0


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One row. Names of fields follow the parameters of scheduler_perf."""

    case: str
    name: str
    nodes_with_dra: int
    nodes_without_dra: int = 0
    init_claims: int = 0
    init_pods: int = 0
    measure_pods: int = 0
    measure_claims: int = 0
    pod_groups: int = 0
    classes: int = 0
    # The beginning of the extended resources' names.
    extended_resource: str = ""
    # How long pods are replaced as they are scheduled; 0: all pods at once, until the last one is scheduled.
    steady_seconds: float = 0.0
    devices: int = 10
    devices_not_matching: int = 0
    list_values: int = 0
    pci_roots: int = 2
    requests: int = 1
    selector: str = ""
    constraints: tuple[dict[str, Any], ...] = ()
    gates: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    # What the average must exceed in Kubernetes' CI, on 6 cores.
    floor: float | None = None

    @property
    def full_name(self) -> str:
        """As Kubernetes' benchmark calls it."""
        return f"{self.case}/{self.name}"

    @property
    def is_steady(self) -> bool:
        """Whether pods are replaced for a while."""
        return self.steady_seconds > 0


def _publish() -> Iterable[Workload]:
    for nodes in (500, 5000):
        yield Workload(case="PublishResourceSlices", name=f"{nodes}nodes", nodes_with_dra=nodes, labels=PERFORMANCE)


def _claim_templates() -> Iterable[Workload]:
    case = "SchedulingWithResourceClaimTemplate"

    def burst(name: str, nodes: int, claims: int, pods: int, plain: int = 0, **more: Any) -> Workload:
        return Workload(
            case=case,
            name=name,
            nodes_with_dra=nodes,
            nodes_without_dra=plain,
            init_claims=claims,
            measure_pods=pods,
            **more,
        )

    def steady(name: str, nodes: int, claims: int, **more: Any) -> Workload:
        return burst(name, nodes, claims, 10, steady_seconds=_STEADY_SECONDS, **more)

    match = {"requests": 5, "constraints": ({"matchAttribute": "resource.kubernetes.io/pciRoot"},)}
    yield burst("fast", 1, 0, 10, plain=1, labels=QUICK)
    yield burst("2000pods_200nodes", 200, 1000, 1000)
    yield burst("5000pods_500nodes", 500, 2500, 2500, labels=PERFORMANCE, floor=56)
    # Kubernetes has forgotten the number of pods of the first two, so that they fail there; ours is that of the third.
    yield steady("empty_100nodes", 100, 0)
    yield steady("empty_200nodes", 200, 0)
    yield steady("empty_500nodes", 500, 0, labels=PERFORMANCE, floor=64)
    yield steady("half_100nodes", 100, 500)
    yield steady("half_200nodes", 200, 1000)
    yield steady("half_500nodes", 500, 2500, labels=PERFORMANCE, floor=60)
    yield steady("full_100nodes", 100, 990)
    yield steady("full_200nodes", 200, 1990)
    yield steady("full_500nodes", 500, 4990, labels=PERFORMANCE, floor=60)
    yield burst("selector_fast", 1, 0, 10, plain=1, selector=SELECTOR, labels=QUICK)
    yield steady("selector_empty_500nodes", 500, 0, selector=SELECTOR, labels=PERFORMANCE, floor=64)
    yield burst("match_fast", 1, 0, 2, plain=1, labels=QUICK, **match)
    yield steady("match_empty_500nodes", 500, 0, labels=PERFORMANCE, floor=64, **match)
    yield burst("5000pods_5000nodes", 5000, 2500, 2500, labels=SCALE)
    yield steady("empty_5000nodes", 5000, 0, labels=SCALE)
    yield steady("half_5000nodes", 5000, 25000, labels=SCALE)


def _claims() -> Iterable[Workload]:
    rows = (("fast", 1, 1, 0, 10, QUICK), ("2000pods_200nodes", 200, 0, 1000, 1000, ()))
    for name, nodes, plain, init, pods, labels in (*rows, ("5000pods_500nodes", 500, 0, 2500, 2500, ())):
        yield Workload(
            case="SchedulingWithResourceClaim",
            name=name,
            nodes_with_dra=nodes,
            nodes_without_dra=plain,
            init_pods=init,
            init_claims=init // 5,
            measure_pods=pods,
            measure_claims=pods // 5,
            devices=2,
            labels=labels,
        )


def _partitions() -> Iterable[Workload]:
    groups = ("DRADeviceCompatibilityGroups", "DRAPartitionableDevices")
    cases = {
        "CompatibilityGroups": groups,
        "Partitionable": groups[1:],
        "PartitionableBacktracking": groups[1:],
    }
    for case, gates in cases.items():
        yield Workload(
            case=case, name="fast", nodes_with_dra=1, nodes_without_dra=1, measure_pods=1, gates=gates, labels=QUICK
        )
        for nodes, full in ((100, None), (500, 490), (1000, 990)):
            for level, claims in (("empty", 0), ("half", nodes // 2), ("full", full)):
                if claims is None:
                    continue
                yield Workload(
                    case=case,
                    name=f"{level}_{nodes}nodes",
                    nodes_with_dra=nodes,
                    init_claims=claims,
                    measure_pods=10,
                    steady_seconds=_STEADY_SECONDS,
                    gates=gates,
                    labels=PERFORMANCE if nodes > 100 else (),
                )


def _consumable() -> Iterable[Workload]:
    case, gate = "ConsumableCapacity", "DRAConsumableCapacity"
    more = (gate, "DRAPartitionableDevices", "DRAResourceClaimDeviceStatus")
    for name, gates in (("fast", (gate,)), ("fast_with_DRAPartitionableDevices", more)):
        yield Workload(
            case=case, name=name, nodes_with_dra=1, nodes_without_dra=1, measure_pods=1, gates=gates, labels=QUICK
        )
    for nodes, full in ((100, None), (500, 3990), (1000, 7990)):
        for level, pods in (("empty", 0), ("half", nodes * 4), ("full", full)):
            if pods is None:
                continue
            yield Workload(
                case=case,
                name=f"{level}_{nodes}nodes",
                nodes_with_dra=nodes,
                init_pods=pods,
                measure_pods=10,
                steady_seconds=_STEADY_SECONDS,
                gates=(gate,),
                labels=PERFORMANCE if nodes > 100 else (),
            )


def _extended() -> Iterable[Workload]:
    case, gates = "ExtendedResource", ("DRAExtendedResource",)
    explicit, implicit = "example.com/gpu", "deviceclass.resource.kubernetes.io/test-class"
    yield Workload(
        case=case,
        name="fast",
        nodes_with_dra=1,
        nodes_without_dra=1,
        classes=10,
        extended_resource=explicit,
        measure_pods=10,
        gates=gates,
        labels=QUICK,
    )
    for mode, resource, classes, floor in (
        ("Explicit", explicit, 25, 120.0),
        ("Explicit", explicit, 50, 130.0),
        ("Implicit", implicit, 25, 130.0),
    ):
        for nodes in (200, 500):
            yield Workload(
                case=case,
                name=f"{mode}_{classes}classes_{nodes * 10}pods_{nodes}nodes",
                nodes_with_dra=nodes,
                classes=classes,
                extended_resource=resource,
                init_pods=nodes * 5,
                measure_pods=nodes * 5,
                gates=gates,
                labels=PERFORMANCE if nodes == 500 else (),
                floor=floor if nodes == 500 else None,
            )
    for name, classes, nodes, plain, pods, labels, least in (
        ("fast", 2, 3, 1, 10, QUICK, None),
        ("2000pods_200nodes", 10, 200, 0, 2000, BOTH, None),
        ("5000pods_500nodes", 20, 500, 0, 5000, BOTH, 70.0),
    ):
        yield Workload(
            case="ExtendedResourceScoring",
            name=name,
            nodes_with_dra=nodes,
            nodes_without_dra=plain,
            classes=classes,
            extended_resource=explicit,
            measure_pods=pods,
            gates=gates,
            labels=labels,
            floor=least,
        )


def _others() -> Iterable[Workload]:
    match = ({"matchAttribute": "dra.example.com/match"},)
    for name, nodes, pods, seconds, labels in (("fast", 1, 1, 0.0, QUICK), ("empty_500nodes", 500, 500, 10.0, ())):
        yield Workload(
            case="SchedulingWithResourceClaimTemplateListAttributes",
            name=name,
            nodes_with_dra=nodes,
            measure_pods=pods,
            steady_seconds=seconds,
            devices=64,
            devices_not_matching=32,
            list_values=47,
            requests=32,
            constraints=match,
            gates=("DRAListTypeAttributes",),
            labels=labels,
        )
    for case, gate in (("DeviceTaintToleration", "DRADeviceTaints"), ("FirstAvailable", "DRAPrioritizedList")):
        yield Workload(
            case=case,
            name="fast",
            nodes_with_dra=1,
            nodes_without_dra=1,
            measure_pods=10,
            gates=(gate,),
            labels=QUICK,
        )
    for case in ("SharedPodGroupResourceClaim", "SharedPodGroupResourceClaimTemplate"):
        for name, nodes, count, pods, label in (
            ("fast", 1, 10, 10, QUICK),
            ("1podgroup_1000pods", 10, 1, 1000, QUICK),
            ("100podgroups_5000pods", 50, 100, 5000, PERFORMANCE),
        ):
            yield Workload(
                case=case,
                name=name,
                nodes_with_dra=nodes,
                pod_groups=count,
                measure_pods=pods,
                gates=("DRAWorkloadResourceClaims", "GenericWorkload"),
                labels=label,
            )


WORKLOADS: tuple[Workload, ...] = tuple(
    workload
    for rows in (_publish, _claim_templates, _claims, _partitions, _consumable, _extended, _others)
    for workload in rows()
)


class UnknownWorkload(ValueError):
    """A name that no workload has. nearest: one that was perhaps meant."""

    def __init__(self, pattern: str) -> None:
        names = [workload.full_name for workload in WORKLOADS]
        self.nearest = next(iter(_nearest(pattern, names)), "")
        super().__init__(f"no workload is called {pattern!r}")


def _nearest(pattern: str, names: list[str]) -> list[str]:
    by_lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(pattern.lower(), by_lower, n=1, cutoff=0.5)
    return [by_lower[name] for name in found]


def find_workloads(patterns: Iterable[str], labels: Iterable[str] = ()) -> tuple[Workload, ...]:
    """Workloads in the order of the table: those that fit any pattern (case/name, case, or name, with * and ?) and have all
    labels. UnknownWorkload for a pattern that nothing fits."""
    patterns, wanted = tuple(patterns), frozenset(labels)
    for pattern in patterns:
        if not any(_fits(workload, pattern) for workload in WORKLOADS):
            raise UnknownWorkload(pattern)
    return tuple(
        workload
        for workload in WORKLOADS
        if wanted <= set(workload.labels) and (not patterns or any(_fits(workload, pattern) for pattern in patterns))
    )


def _fits(workload: Workload, pattern: str) -> bool:
    names = (workload.full_name, workload.case, workload.name)
    return any(fnmatchcase(name.lower(), pattern.lower()) for name in names)


LABELS = tuple(sorted({label for workload in WORKLOADS for label in workload.labels}))
