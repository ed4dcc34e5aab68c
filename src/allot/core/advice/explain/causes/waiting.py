"""Pods that fit: their devices are allocated but not ready, or the scheduler has not processed them yet."""

from __future__ import annotations

import re
from collections.abc import Sequence

from allot.core.advice.explain.causes import driver_pods
from allot.core.advice.explain.causes.components import SCHEDULER, down
from allot.core.advice.explain.causes.keepers import idle_keeper, idle_scheduler
from allot.core.advice.explain.devices import users_of
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, delete_of, patch_of
from allot.core.advice.explain.remedies.holders import going
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.trial import DEFAULT_SCHEDULER, Subject, pod_subject, unready, would_help
from allot.core.advice.explain.wording import duration, named, one_line
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster, as_json, full_name
from allot.core.allocation.devices import DeviceID
from allot.core.features import GATES
from allot.core.lifecycle.times import seconds_of, time_of
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api

_SMALL_NODES_MAX = 100
# Messages of schedulers that could not write their decision.
_WRITING = re.compile(r'running (?P<point>Reserve|Permit|PreBind|Bind) plugin "(?P<plugin>[^"]+)": (?P<why>.*)')
_CANNOT_MODIFY = "field cannot be modified once set"


def not_ready(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """Devices of the pod that are allocated but not ready yet."""
    claim = unready(what_if, pod)
    if claim is None or claim.status.allocation is None:
        return None
    results = [result for result in claim.status.allocation.devices.results if result.binding_conditions]
    first = results[0]
    devices = named("device", [result.device for result in results])
    conditions = named("binding condition", {name for result in results for name in result.binding_conditions})
    text = (
        f"{devices} of claim {full_name(claim)} {'is' if len(results) == 1 else 'are'} allocated, but driver {first.driver} has not "
        f"set {conditions} to True yet{_said_of(claim)}{_since(what_if, claim)}"
    )
    patch = _set_by_driver(what_if, claim, results)
    failing = driver_pods.failing(what_if, first.driver, controllers=True)
    names = (*first.binding_conditions, first.driver)
    keeper = None if failing else idle_keeper(what_if, names, "makes the devices ready")
    text += f": {driver_pods.failing_text(failing)}" if failing else f": {keeper.text}" if keeper is not None else ""
    done = f"see the log of the controller of driver {first.driver}, if {devices} {'does' if len(results) == 1 else 'do'} not become ready soon"
    done = failing[0].advice if failing else keeper.advice if keeper is not None else done
    return Diagnosis(
        reason=Reason.BINDING_CONDITIONS,
        text=text,
        candidates=(Candidate(rank=Rank.ADMIN, text=done, patches=(patch,)),),
    )


def _said_of(claim: api.ResourceClaim) -> str:
    """The driver's report about devices that are not ready."""
    for device in claim.status.devices:
        for condition in device.conditions:
            if condition.status != "True" and condition.message:
                return f" ({condition.message})"
    return ""


def _since(what_if: WhatIfCluster, claim: api.ResourceClaim) -> str:
    """For how long the devices have been allocated."""
    allocation = claim.status.allocation
    since = allocation.allocation_timestamp if allocation is not None else None
    if not since or what_if.taken_at is None:
        return ""
    seconds = int(what_if.taken_at - seconds_of(since))
    return f", for {duration(seconds)}" if seconds > 0 else ""


def _set_by_driver(
    what_if: WhatIfCluster, claim: api.ResourceClaim, results: Sequence[api.DeviceRequestAllocationResult]
) -> Patch:
    """The status that the driver still has to set."""
    owed = {(result.driver, result.pool, result.device) for result in results}
    kept = [
        each
        for each in as_json(claim).get("status", {}).get("devices", [])
        if (each.get("driver"), each.get("pool"), each.get("device")) not in owed
    ]
    ready = [
        {
            "driver": result.driver,
            "pool": result.pool,
            "device": result.device,
            "conditions": [
                {
                    "type": name,
                    "status": "True",
                    "reason": "Ready",
                    "message": "",
                    "lastTransitionTime": time_of(what_if.now),
                }
                for name in result.binding_conditions
            ],
        }
        for result in results
    ]
    operation = {"op": "add", "path": "/status/devices", "value": [*kept, *ready]}
    return patch_of("ResourceClaim", claim.metadata.name, operation, namespace=claim.metadata.namespace)


def room_is_made(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """Preempted pods that are terminating on the nominated node of a pod, which fits when they are gone. None if they
    are not the only thing that it waits for."""
    node = pod.status.nominated_node_name
    info = what_if.cluster.nodes.get(node)
    if info is None:
        return None
    leaving = [each.pod for each in info.pods.values() if each.pod.metadata.deletion_timestamp is not None]
    if not leaving:
        return None
    gone = tuple(delete_of("Pod", each.metadata.name, each.metadata.namespace) for each in leaving)
    outcome = would_help(what_if, pod_subject(pod), gone)
    if outcome is None or not outcome.schedulable:
        return None
    names = named("pod", [full_name(each) for each in leaving])
    them, are = ("it is", "is") if len(leaving) == 1 else ("they are", "are")
    kept = sorted({name for each in leaving for name in each.metadata.finalizers})
    held = f", kept by {named('finalizer', kept)}" if kept else ""
    text = f"waits for {names} on node {node}, which {are} terminating to make room for it{held}: it starts there when {them} gone"
    how, waits = going(what_if, leaving)
    candidate = Candidate(rank=Rank.FIX, text=how, patches=gone, waits=waits)
    return Diagnosis(reason=Reason.WAITS_FOR_ROOM, text=text, candidates=(candidate,))


def binding_failed(what_if: WhatIfCluster, pod: core_v1.Pod, said: str) -> Diagnosis | None:
    """The message of a scheduler that found a node but failed in a write before binding; None if it says
    nothing of the kind."""
    found = _WRITING.search(one_line(said))
    if found is None:
        return None
    foreign = _allocated_by_another(what_if, pod) if _CANNOT_MODIFY in said else None
    if foreign is not None:
        return foreign
    text = f"its scheduler found a node, but could not bind it there ({found['point']} of {found['plugin']}): {found['why']}"
    advice = ("fix what the API server refused: the scheduler retries automatically",)
    return Diagnosis(reason=Reason.NOT_BOUND, text=text, advice=advice)


def _allocated_by_another(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """A claim that another scheduler allocated without a timestamp. kube-scheduler tries to add one when it reserves the claim for a
    pod of its own, but an allocation is immutable."""
    for namespace, name in what_if.claims.claims_of(pod):
        claim = what_if.get(api.ResourceClaim, name, namespace)
        allocation = claim.status.allocation if claim is not None else None
        if claim is None or allocation is None or allocation.allocation_timestamp:
            continue
        users = [each for each in users_of(what_if, claim) if each.spec.scheduler_name != pod.spec.scheduler_name]
        if not users:
            continue
        other = users[0].spec.scheduler_name
        text = (
            f"ResourceClaim {namespace}/{name} was allocated by another scheduler, {other}, for {named('pod', map(full_name, users))}, "
            f"without an allocationTimestamp, which {pod.spec.scheduler_name} may not add when it reserves the claim for this pod"
        )
        advice = (
            f"set schedulerName: {other} in this pod: pods that share a claim need one scheduler",
            f"create {named('pod', map(full_name, users))} and the claim again with schedulerName: {pod.spec.scheduler_name}",
        )
        return Diagnosis(reason=Reason.NOT_BOUND, text=text, advice=advice)
    return None


def scheduler_down(what_if: WhatIfCluster, pod: core_v1.Pod, node: str) -> Diagnosis | None:
    """The pod's scheduler does not run, so it stays pending although it fits; None if it runs, or if unknown."""
    name = pod.spec.scheduler_name
    found = down(what_if, SCHEDULER) if name == DEFAULT_SCHEDULER else None
    idle = idle_scheduler(what_if, name) if name != DEFAULT_SCHEDULER else None
    if found is None and idle is None:
        return None
    why = f"{SCHEDULER} {found.text}" if found is not None else ""
    why = f"its scheduler {name} does not run: {idle.text}" if idle is not None else why
    text = f"{why}; nothing else is in its way, and it would be placed on node {node}"
    advice = [each.advice for each in (found, idle) if each is not None]
    return Diagnosis(reason=Reason.COMPONENT_DOWN, text=text, advice=tuple(advice))


def missing_gate(what_if: WhatIfCluster, subject: Subject, node: str) -> Diagnosis | None:
    """A feature gate that decides whether a pod fits: its scheduler may run without it. Only for small clusters,
    because everything is read again for each gate."""
    if len(what_if.cluster.nodes) > _SMALL_NODES_MAX:
        return None
    proven = proven_gates(what_if)
    for gate in GATES.values():
        if gate.locked or gate.name not in what_if.gates or not gate.name.startswith("DRA") or gate.name in proven:
            continue
        off = (Patch(action="gate", name=gate.name, enabled=False),)
        outcome = would_help(what_if, subject, off)
        if outcome is not None and not outcome.schedulable:
            text = (
                f"its scheduler seems to run without feature gate {gate.name}: with it the pod fits on node {node}, without it "
                "nowhere"
            )
            return Diagnosis(
                reason=Reason.FEATURE, text=text, advice=(f"enable feature gate {gate.name} of the scheduler",)
            )
    return None


def proven_gates(what_if: WhatIfCluster) -> set[str]:
    """Feature gates that the scheduler must have had for the existing allocations."""
    proven = set()
    devices = what_if.claims.inventory
    for claim in what_if.all(api.ResourceClaim):
        for result in claim.status.allocation.devices.results if claim.status.allocation is not None else ():
            if result.share_id is not None or result.consumed_capacity:
                proven.add("DRAConsumableCapacity")
            if result.binding_conditions:
                proven.add("DRADeviceBindingConditions")
            entries = devices.devices_named(DeviceID(result.driver, result.pool, result.device))
            if any(entry.device.consumes_counters for entry in entries):
                proven.add("DRAPartitionableDevices")
    return proven


def fits(what: str, node: str) -> Diagnosis:
    """Nothing is in the way. what: the pod or gang."""
    text = (
        f"{what} would be placed on node {node} when the scheduler gets to it: nothing in this snapshot is in its way"
    )
    advice = ("if it keeps waiting, check that the scheduler runs, and its log about the pod",)
    return Diagnosis(reason=Reason.FITS, text=text, advice=advice)
