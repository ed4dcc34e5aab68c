"""Device health as reported by nodes in the status of pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allot.core.allocation.devices import DeviceID
from allot.core.model.core_v1 import Pod

_UNHEALTHY = "Unhealthy"
# The separator before the device name in most CDI names.
_BEFORE_NAMES = ("=", "-", "/")


def sick_devices(pod: Pod, held: Sequence[DeviceID]) -> Mapping[DeviceID, str]:
    """The devices of a pod that its node reports as unhealthy, and why. held: those of its claims."""
    found: dict[DeviceID, str] = {}
    for status in pod.status.container_statuses:
        for resource in status.allocated_resources_status:
            for health in resource.resources:
                if health.health == _UNHEALTHY:
                    text = f"unhealthy: {health.message}" if health.message else "unhealthy"
                    found |= dict.fromkeys(_meant(health.resource_id, held), text)
    return found


def _meant(name: str, held: Sequence[DeviceID]) -> Sequence[DeviceID]:
    """Nodes name a device by its first CDI name, which drivers choose, or by driver, pool and name."""
    if len(held) == 1:
        return held
    exact = [id_ for id_ in held if str(id_) == name]
    return exact or [id_ for id_ in held if name.endswith(tuple(f"{mark}{id_.device}" for mark in _BEFORE_NAMES))]
