"""Compares a group's minResources with what is free on all nodes together."""

from __future__ import annotations

from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.groups.dialects import ForeignGroup
from allot.core.scheduling.groups.shape import minimum_of

# Volcano's names for devices: deviceclass/gpu.example.com, memory.deviceclass/gpu.example.com.
_DEVICES = "deviceclass/"
_MILLI = 10**6
_NANO = 10**9


def resource_gap(cluster: Cluster, group: ForeignGroup) -> str:
    """What is missing, in coscheduling's words; empty if there is enough. What the group's own pods use counts as free; devices are not
    counted here."""
    wanted = {name: amount.nano for name, amount in group.min_resources.items() if _DEVICES not in name}
    wanted["pods"] = max(wanted.get("pods", 0), minimum_of(group) * _NANO)
    own = {member.key for member in cluster.members(group)}
    free = dict.fromkeys(wanted, 0)
    for info in cluster.nodes.values():
        has = {
            "cpu": (info.allocatable_cpu - info.cpu) * _MILLI,
            "memory": (info.allocatable_memory - info.memory) * _NANO,
            "ephemeral-storage": (info.allocatable_storage - info.storage) * _NANO,
            "pods": (info.allocatable_pods - len(info.pods)) * _NANO,
        }
        for name, amount in info.allocatable_scalars.items():
            has[name] = (amount - info.scalars.get(name, 0)) * _NANO
        for pod in info.pods.values():
            if pod.key in own:
                has["cpu"] += pod.cpu * _MILLI
                has["memory"] += pod.memory * _NANO
                has["pods"] += _NANO
                for name, amount in pod.scalars.items():
                    has[name] = has.get(name, 0) + amount * _NANO
        for name in wanted:
            free[name] += has.get(name, 0)
    devices = cluster.devices
    short = {
        name: nano - free[name]
        for name, nano in sorted(wanted.items())
        if nano > free[name] and not (devices is not None and devices.backs(name))
    }
    if not short:
        return ""
    return "resource gap: " + ", ".join(f"{name} {_amount(name, nano)}" for name, nano in short.items())


def _amount(name: str, nano: int) -> str:
    return f"{-(-nano // _MILLI)}m" if name == "cpu" else str(-(-nano // _NANO))
