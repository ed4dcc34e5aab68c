"""The workloads of Kubernetes' scheduler benchmark for DRA (scheduler_perf, 1.37), and a few larger ones.

Only data, in workloads.yaml: numbers of nodes, claims and pods, gates, thresholds of Kubernetes' CI. `objects` builds the
objects, `cases` has the order of steps.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import msgspec

from allot.process.data_files import read_data_file


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    # The prefix of the extended resources' names.
    extended_resource: str = ""
    # How long scheduled pods are replaced; 0: create all pods at once, and run until the last one is scheduled.
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


class _Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A test case of scheduler_perf. common: default fields of its workloads."""

    workloads: tuple[dict[str, Any], ...]
    common: dict[str, Any] = {}


@cache
def workloads() -> tuple[Workload, ...]:
    """All workloads, in the order of the table."""
    cases = read_data_file(__package__, "workloads.yaml", dict[str, _Case])
    return tuple(
        msgspec.convert({"case": name, **case.common, **row}, Workload)
        for name, case in cases.items()
        for row in case.workloads
    )


class UnknownWorkload(ValueError):
    """An unknown workload name. nearest: a similar one."""

    def __init__(self, pattern: str) -> None:
        names = [workload.full_name for workload in workloads()]
        self.nearest = next(iter(_nearest(pattern, names)), "")
        super().__init__(f"no workload has the name {pattern!r}")


def _nearest(pattern: str, names: list[str]) -> list[str]:
    by_lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(pattern.lower(), by_lower, n=1, cutoff=0.5)
    return [by_lower[name] for name in found]


def find_workloads(patterns: Iterable[str], labels: Iterable[str] = ()) -> tuple[Workload, ...]:
    """Workloads in the order of the table: those that match any pattern (case/name, case, or name, with * and ?) and have all
    labels. UnknownWorkload for a pattern without a match."""
    patterns, wanted = tuple(patterns), frozenset(labels)
    for pattern in patterns:
        if not any(_fits(workload, pattern) for workload in workloads()):
            raise UnknownWorkload(pattern)
    return tuple(
        workload
        for workload in workloads()
        if wanted <= set(workload.labels) and (not patterns or any(_fits(workload, pattern) for pattern in patterns))
    )


def _fits(workload: Workload, pattern: str) -> bool:
    names = (workload.full_name, workload.case, workload.name)
    return any(fnmatchcase(name.lower(), pattern.lower()) for name in names)


def labels() -> tuple[str, ...]:
    """All labels that some workload has."""
    return tuple(sorted({label for workload in workloads() for label in workload.labels}))
