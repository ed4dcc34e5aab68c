"""What makes the scheduler try a waiting pod again: the events that the plugins care about that refused it (`core/scheduling/queueing/hints.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.advice.what_if import WhatIfCluster
from allot.core.scheduling import refusing_plugins

_A_NODE = "a node is added, or its labels change"
_A_POD_ENDS = "a pod on one of the nodes ends"
_VOLUMES = ("its volume, volume claim or storage class changes", _A_NODE)
# By plugin; the empty name stands for a cluster without nodes.
EVENTS: Mapping[str, tuple[str, ...]] = {
    "DynamicResources": (
        "a claim gives devices back",
        "a driver publishes more devices (ResourceSlice), or a DeviceClass changes",
        "one of its own claims changes",
        _A_NODE,
    ),
    "NodeResourcesFit": (
        "a pod on one of the nodes ends or is made smaller",
        "a node with enough room is added, or gets more",
    ),
    "NodeAffinity": ("a node with the labels that it wants is added, or gets them",),
    "NodeName": ("the node that it names is added",),
    "NodeUnschedulable": ("a node is uncordoned or added",),
    "TaintToleration": ("a node loses the taint that it does not tolerate, or one without it is added",),
    "NodePorts": ("a pod that uses the same host port ends", "a node is added"),
    "InterPodAffinity": ("a pod that its affinity is about starts, ends or gets other labels", _A_NODE),
    "PodTopologySpread": ("a pod that it is spread with starts, ends or gets other labels", _A_NODE),
    "VolumeBinding": _VOLUMES,
    "VolumeZone": _VOLUMES,
    "NodeVolumeLimits": (_A_POD_ENDS, "a node is added, or can attach more volumes (CSINode)"),
    "VolumeRestrictions": ("the pod that uses its volume ends", "a node is added"),
    "GangScheduling": ("another pod of its gang is created, or the PodGroup changes",),
    "DefaultPreemption": (_A_POD_ENDS,),
    "Queues": ("a pod of its queue, or of one that borrows, ends", "its queue changes"),
    "": ("a node is added",),
}


def wakes(what_if: WhatIfCluster, key: str) -> tuple[str, ...]:
    """What has to happen before a pod or gang is tried again, by the key under which it waits; empty if it does not wait for an event."""
    asked = what_if.machine.ask(key, what_if.now)
    if asked is None or asked.closed is not None:
        return ()
    plugins = set(refusing_plugins(asked.failure)) if asked.failure is not None else set()
    if asked.decision is not None:
        plugins |= {plugin for refusal in asked.decision.refusals for plugin in refusal.plugins}
    return tuple(dict.fromkeys(text for plugin in sorted(plugins) for text in EVENTS.get(plugin, ())))
