"""The table of workloads is Kubernetes' table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from allot.bench.cases import AllocateClaims, CreateObjects, CreatePods, steps_of
from allot.bench.workloads import UnknownWorkload, Workload, find_workloads, workloads
from vectors import vectors_dir

WORKLOADS = workloads()
_NAMES = {workload.full_name: workload for workload in WORKLOADS}
# Of the parameters in Kubernetes' files, those that its steps fix, or that say nothing.
_PARAMETERS = {
    "nodesWithDRA": "nodes_with_dra",
    "nodesWithoutDRA": "nodes_without_dra",
    "initClaims": "init_claims",
    "initPods": "init_pods",
    "measurePods": "measure_pods",
    "measureClaims": "measure_claims",
    "podGroups": "pod_groups",
    "classes": "classes",
    "numDevices": "devices",
    "numNonMatchingDevices": "devices_not_matching",
    "numListValues": "list_values",
    "numRequests": "requests",
    "numPCIRoots": "pci_roots",
}


def upstream() -> list[dict[str, Any]]:
    folder = vectors_dir()
    if folder is None or not (folder / "benchmark-workloads.json").exists():
        pytest.skip("no vectors: set ALLOT_VECTORS to their folder")
    rows: list[dict[str, Any]] = json.loads((folder / "benchmark-workloads.json").read_text())
    return rows


def test_every_workload_of_kubernetes_is_there_with_its_parameters() -> None:
    rows = upstream()
    assert len(rows) == 78
    for row in rows:
        name = f"{row['testCase']}/{row['workload']}"
        workload, params = _NAMES[name], row["params"]
        for parameter, field in _PARAMETERS.items():
            if parameter in params:
                assert getattr(workload, field) == params[parameter], f"{name}: {parameter}"
        assert workload.is_steady == params.get("steadyState", False), name
        if workload.is_steady:
            assert params["duration"] == f"{workload.steady_seconds:g}s"
        selectors = [{"cel": {"expression": workload.selector}}] if workload.selector else None
        assert (params.get("selectors") or None) == selectors, name
        assert tuple(params.get("constraints") or ()) == workload.constraints, name
        assert set(row["gates"]) == {"DynamicResourceAllocation", *workload.gates}, name
        assert tuple(row["labels"]) == workload.labels, name
        floor = row["minAveragePodsPerSecond"]
        assert (floor["dra"] if isinstance(floor, dict) else floor) == workload.floor, name


def test_what_is_not_kubernetes_own_is_labelled_so() -> None:
    ours = set(_NAMES) - {f"{row['testCase']}/{row['workload']}" for row in upstream()}
    assert ours == {workload.full_name for workload in WORKLOADS if "scale" in workload.labels}


def test_names_are_unique() -> None:
    assert len(_NAMES) == len(WORKLOADS)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.full_name)
def test_every_workload_has_steps_that_make_its_objects_and_measures_one_of_them(workload: Workload) -> None:
    steps = steps_of(workload)
    measured = [step for step in steps if isinstance(step, CreatePods | CreateObjects) and step.measured]
    assert len(measured) == 1
    assert measured[0] is steps[-1]
    for step in steps:
        if isinstance(step, CreatePods | CreateObjects) and step.count:
            made = step.make(step.count - 1, workload)
            assert made["kind"] and made["metadata"]
    assert any(isinstance(step, AllocateClaims) for step in steps) == bool(
        workload.init_claims and workload.case != "SchedulingWithResourceClaim"
    )


def test_workloads_are_found_by_name_pattern_and_label() -> None:
    full = "SchedulingWithResourceClaimTemplate/5000pods_500nodes"
    assert [workload.full_name for workload in find_workloads([full])] == [full]
    assert {workload.name for workload in find_workloads(["partitionable/*_500nodes"])} == {
        "empty_500nodes",
        "half_500nodes",
        "full_500nodes",
    }
    assert len(find_workloads(["Partitionable"])) == 9
    assert all("performance" in workload.labels for workload in find_workloads([], ["performance"]))
    assert find_workloads([]) == WORKLOADS


def test_an_unknown_name_comes_with_the_nearest_one() -> None:
    with pytest.raises(UnknownWorkload) as caught:
        find_workloads(["SchedulingWithResourceClaimTemplates/5000pod_500node"])
    assert caught.value.nearest == "SchedulingWithResourceClaimTemplate/5000pods_500nodes"
    assert "SchedulingWithResourceClaimTemplates/5000pod_500node" in str(caught.value)
