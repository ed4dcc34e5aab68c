"""Devices of bound pods that their kubelet or driver reports as broken, and how to keep other pods from them."""

from __future__ import annotations

from allot.core.advice.explain.devices import taint_rule_text
from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.messages.facts import HeldDevice, held_devices
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import count
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation.devices import DeviceID
from allot.core.allocation.signature import USABLE
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api

_UNHEALTHY = "Unhealthy"
_READY = ("Ready", "Healthy")
_KEEPS_OFF = ("NoSchedule", "NoExecute")


def unhealthy(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """A device that the kubelet reports as unhealthy, or its driver as not ready; None if there is none."""
    return _said_by_kubelet(what_if, pod) or _said_by_driver(what_if, pod)


def _said_by_kubelet(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    for status in pod.status.container_statuses:
        for part in status.allocated_resources_status:
            for health in part.resources:
                if health.health == _UNHEALTHY:
                    held = _device_behind(what_if, pod, health.resource_id)
                    device = str(held.id) if held is not None else health.resource_id
                    said = f": {health.message}" if health.message else ""
                    text = f"device {device} on node {pod.spec.node_name} is unhealthy{said}"
                    advice = _kept_off(what_if, pod, held.id if held is not None else None)
                    return Diagnosis(reason=Reason.DEVICE_UNHEALTHY, text=text, advice=(advice,))
    return None


def _device_behind(what_if: WhatIfCluster, pod: core_v1.Pod, resource_id: str) -> HeldDevice | None:
    """The device that a kubelet reports about: it does so by a CDI name, which ends in the device's own."""
    found = [
        held
        for held in held_devices(what_if, pod)
        if resource_id == str(held.id) or resource_id.endswith(held.result.device)
    ]
    return found[0] if len(found) == 1 else None


def _said_by_driver(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """A driver that reports an allocated device as not ready."""
    for namespace, name in what_if.claims.claims_of(pod):
        claim = what_if.get(api.ResourceClaim, name, namespace)
        for device in claim.status.devices if claim is not None else ():
            for condition in device.conditions:
                if condition.status == "False" and condition.type.rpartition("/")[2] in _READY:
                    said = condition.message or condition.reason
                    text = (
                        f"driver {device.driver} says that device {device.device} of claim {namespace}/{name} is not ready"
                        f"{f': {said}' if said else ''}"
                    )
                    log = f"see the log of driver {device.driver} on node {pod.spec.node_name}"
                    off = _kept_off(what_if, pod, DeviceID(device.driver, device.pool, device.device))
                    return Diagnosis(reason=Reason.DEVICE_UNHEALTHY, text=text, advice=(log, f"if it is broken, {off}"))
    return None


def _kept_off(what_if: WhatIfCluster, pod: core_v1.Pod, id_: DeviceID | None) -> str:
    """How a pod gets another device, and no other pod the broken one. id_: None if it is not known which one that is."""
    again = "delete the pod so that it gets another one"
    if id_ is None:
        return f"repair or reset the device, and {again}"
    entries = what_if.claims.inventory.devices_named(id_)
    tainted = next((each.key for entry in entries for each in entry.taints if each.effect in _KEEPS_OFF), None)
    others = _free(what_if, pod, id_)
    free = f" ({count(others, 'other')} {'is' if others == 1 else 'are'} free)" if others else ""
    if tainted is not None:
        return f"{again}{free}: taint {tainted} keeps others from {id_.device}; then reset or replace {id_.device}"
    return f"create {taint_rule_text(id_)} to keep pods from the device, and {again}{free}; then reset or replace {id_.device}"


def _free(what_if: WhatIfCluster, pod: core_v1.Pod, id_: DeviceID) -> int:
    """How many devices that no one has would do for the request that has a device."""
    held = next((each for each in held_devices(what_if, pod) if each.id == id_), None)
    inventory = what_if.claims.inventory
    leaves = [
        leaf
        for request in (inventory.plan(held.claim.spec).requests if held is not None else ())
        for leaf in request.leaves
        if held is not None and leaf.full_name == held.result.request and leaf.signature is not None
    ]
    signature = leaves[0].signature if leaves else None
    found = inventory.judged(signature) if signature is not None else ()
    return sum(verdict == USABLE and not entry.state.allocated for entry, verdict in found)
