"""Groups of nodes that are empty, although their nodes would have the devices that a pod needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from allot.core.advice.explain.causes.driver_pods import speaks_of_devices
from allot.core.advice.explain.causes.vendors import are_rivals
from allot.core.advice.explain.events import events_of
from allot.core.advice.explain.node_supply import NOT_TRIGGERED
from allot.core.advice.explain.wording import one_line
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model.machine_groups import MachineDeployment, MachineSet

# What a group says of nodes that it does not have yet, for autoscalers.
_DRIVER = "capacity.cluster-autoscaler.kubernetes.io/dra-driver"
_GPUS = ("capacity.cluster-autoscaler.kubernetes.io/gpu-count", "machine.openshift.io/GPU")
_GPU_TYPE = "capacity.cluster-autoscaler.kubernetes.io/gpu-type"
_LEAST = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
_NOT_TOLD = "pod didn't trigger scale-up: "

MachineGroup = MachineDeployment | MachineSet


class EmptyGroup(NamedTuple):
    """A group without nodes. text: phrased to follow a semicolon."""

    text: str
    advice: str


def empty_group(what_if: WhatIfCluster, pod: core_v1.Pod, drivers: Sequence[str]) -> EmptyGroup | None:
    """A group whose nodes would have devices of these drivers, or offer these resources, and that has none; None if there is no such
    group, or if it has nodes."""
    groups: list[MachineGroup] = [*what_if.all(MachineDeployment), *what_if.all(MachineSet)]
    able = [each for each in groups if _has_devices(each, drivers)]
    if not able or any(each.spec.replicas != 0 for each in able):
        return None
    group = max(able, key=lambda each: each.metadata.annotations.get(_DRIVER) in drivers)
    kind, metadata = type(group).__name__, group.metadata
    text = f"{kind} {full_name(group)}, whose nodes have such devices, has 0 replicas"
    said = next(iter(events_of(what_if, pod, NOT_TRIGGERED)), None)
    if said is not None:
        text += f", and the autoscaler does not add one ({one_line(said.message).removeprefix(_NOT_TOLD)})"
    scale = f"kubectl scale {kind.lower()} {metadata.name} -n {metadata.namespace} --replicas=1"
    least = metadata.annotations.get(_LEAST)
    keep = f"; annotation {_LEAST}: '1' lets the autoscaler keep the node" if least == "0" else ""
    return EmptyGroup(text, f"{scale}{keep}")


def _has_devices(group: MachineGroup, drivers: Sequence[str]) -> bool:
    annotations = group.metadata.annotations
    told, kind = annotations.get(_DRIVER, ""), annotations.get(_GPU_TYPE, "")
    if told or kind in drivers:
        return told in drivers or kind in drivers
    if any(are_rivals(f"{kind} {group.metadata.name}", driver) for driver in drivers):
        return False
    return any(annotations.get(each, "0") not in ("", "0") for each in _GPUS) or speaks_of_devices(group.metadata.name)
