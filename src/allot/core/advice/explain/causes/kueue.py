"""Pods and Jobs that Kueue holds back. It removes its gates and suspensions itself: doing so by hand would jump the queue."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from allot.core.advice.explain.causes.kueue_order import behind_another, is_to_come
from allot.core.advice.explain.causes.kueue_quotas import Held, short_of_quota, too_much
from allot.core.advice.explain.causes.kueue_support import not_supported
from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.wording import listed, one_line
from allot.core.advice.nearest import nearest
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1, observed_v1
from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import ResourceClaimTemplate
from allot.core.workloads.ownership import controller_reference

KUEUE = "Kueue"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_QUEUED_GROUP_LABEL = "kueue.x-k8s.io/pod-group-name"
_ADMISSION = ("QuotaReserved", "Admitted")
_UNMAPPED = re.compile(r'DeviceClass "?(?P<class_name>[^"\s]+)"? is not mapped')
_ABSENT = re.compile(r"references missing(?:/inactive)? (?P<kind>ResourceFlavor|AdmissionCheck)\(s\): (?P<names>[^;]+)")
_CONFIGURATION = "kueue-manager-config"


def queue_of(metadata: ObjectMeta) -> str:
    """The LocalQueue that a pod or Job names; empty if none."""
    return metadata.labels.get(QUEUE_LABEL, "")


def cluster_queue_of(what_if: WhatIfCluster, namespace: str, name: str) -> observed_v1.ClusterQueue | None:
    """The ClusterQueue behind a LocalQueue, if both exist."""
    local = what_if.get(observed_v1.LocalQueue, name, namespace)
    return what_if.get(observed_v1.ClusterQueue, local.spec.cluster_queue) if local is not None else None


def workload_of(what_if: WhatIfCluster, metadata: ObjectMeta) -> observed_v1.KueueWorkload | None:
    """The Workload that represents a pod or Job in Kueue's queue."""
    group = metadata.labels.get(_QUEUED_GROUP_LABEL, "")
    for workload in what_if.all(observed_v1.KueueWorkload):
        owners = {owner.uid for owner in workload.metadata.owner_references}
        if workload.metadata.namespace == metadata.namespace and (
            metadata.uid in owners or (group and workload.metadata.name == group)
        ):
            return workload
    return None


def held_by_kueue(
    what_if: WhatIfCluster, kind: str, metadata: ObjectMeta, containers: Iterable[core_v1.Container]
) -> Held:
    """Why Kueue has not admitted a pod or Job: its queue is missing or stopped, another one is before it, or what Kueue itself says."""
    workload = workload_of(what_if, metadata)
    name = queue_of(metadata) or (workload.spec.queue_name if workload is not None else "")
    asking = list(containers)
    queue = cluster_queue_of(what_if, metadata.namespace, name)
    return (
        _no_queue(what_if, kind, metadata, name)
        or _stopped(what_if, metadata.namespace, name)
        or _kept_back(what_if, workload)
        or _in_line(what_if, workload, queue, asking)
        or _said(what_if, workload, metadata.namespace, name)
        or too_much(queue, asking)
        or Held("", _ask(metadata.namespace, workload))
    )


def _ask(namespace: str, workload: observed_v1.KueueWorkload | None) -> str:
    if workload is None:
        return "ask Kueue why: its queue has no quota left, is stopped, or does not exist"
    return f"see what Kueue says: kubectl describe workloads.kueue.x-k8s.io -n {namespace} {workload.metadata.name}"


def _no_queue(what_if: WhatIfCluster, kind: str, metadata: ObjectMeta, name: str) -> Held | None:
    namespace = metadata.namespace
    queues = what_if.all(observed_v1.LocalQueue)
    known = sorted(each.metadata.name for each in queues if each.metadata.namespace == namespace)
    # A dump without a single queue was probably taken without them.
    if not name or name in known or not queues or observed_v1.LocalQueue in what_if.unread:
        return None
    meant = nearest(name, known) or (known[0] if len(known) == 1 else None)
    there = f" (did you mean {meant}?)" if meant is not None else f" (there is {listed(known)})" if known else ""
    advice = f"create LocalQueue {namespace}/{name}"
    if meant is not None:
        advice = f"kubectl label {kind.lower()} {metadata.name} -n {namespace} --overwrite {QUEUE_LABEL}={meant}"
    return Held(f"LocalQueue {namespace}/{name} does not exist{there}", advice)


def _stopped(what_if: WhatIfCluster, namespace: str, name: str) -> Held | None:
    local = what_if.get(observed_v1.LocalQueue, name, namespace)
    if local is None:
        return None
    of = local.spec.cluster_queue
    found = what_if.get(observed_v1.ClusterQueue, of)
    queues = what_if.all(observed_v1.ClusterQueue)
    if found is None and queues and observed_v1.ClusterQueue not in what_if.unread:
        meant = nearest(of, [each.metadata.name for each in queues])
        there = f" (did you mean {meant}?)" if meant is not None else ""
        advice = f"set clusterQueue: {meant} in LocalQueue {namespace}/{name}" if meant else f"create ClusterQueue {of}"
        return Held(f"LocalQueue {namespace}/{name} points to ClusterQueue {of}, which does not exist{there}", advice)
    for what, queue in ((f"ClusterQueue {of}", found), (f"LocalQueue {namespace}/{name}", local)):
        if queue is None:
            continue
        policy = queue.spec.stop_policy
        if policy not in ("", "None"):
            return Held(f"{what} is stopped (stopPolicy: {policy})", f"set stopPolicy: None in {what}")
        for condition in queue.status.conditions:
            if condition.type == "Active" and condition.status == "False":
                said = one_line(condition.message) or condition.reason
                absent = _ABSENT.search(said)
                if absent is not None:
                    return _refers_to_nothing(what_if, what, absent["kind"], absent["names"].strip(" ."))
                return Held(f"{what} is not active: {said}", f"make {what} active: {said}")
    return None


def _refers_to_nothing(what_if: WhatIfCluster, queue: str, kind: str, names: str) -> Held:
    """A queue that Kueue does not use because something that it names does not exist."""
    flavors = [each.metadata.name for each in what_if.all(observed_v1.ResourceFlavor)]
    meant = nearest(names, flavors) if kind == "ResourceFlavor" else None
    there = f" (did you mean {meant}?)" if meant is not None else ""
    there = there or (f" (there is {listed(sorted(flavors))})" if kind == "ResourceFlavor" and flavors else "")
    correct = f"name {meant} instead in {queue}" if meant is not None else f"correct its name in {queue}"
    return Held(
        f"{queue} is not active: {kind} {names}, which it names, does not exist{there}",
        f"{correct}, or create {kind} {names}" if meant is not None else f"create {kind} {names}, or {correct}",
    )


def _kept_back(what_if: WhatIfCluster, workload: observed_v1.KueueWorkload | None) -> Held | None:
    """A workload that is deactivated, whose checks are not ready, or that was evicted and must wait."""
    if workload is None:
        return None
    metadata, status = workload.metadata, workload.status
    evicted = next((each for each in status.conditions if each.type == "Evicted" and each.status == "True"), None)
    why = f": {one_line(evicted.message)}" if evicted is not None and evicted.message else ""
    named = f"Workload {metadata.namespace}/{metadata.name}"
    if workload.spec.active is False:
        patch = '{"spec":{"active":true}}'
        again = (
            f"kubectl patch workloads.kueue.x-k8s.io {metadata.name} -n {metadata.namespace} --type merge -p '{patch}'"
        )
        return Held(f"its {named} is deactivated (spec.active: false){why}", f"{again}, when that is fixed")
    for check in status.admission_checks:
        if check.state != "Ready":
            said = f": {one_line(check.message)}" if check.message else ""
            advice = f"see the log of the controller of AdmissionCheck {check.name} about {named}"
            return Held(f"AdmissionCheck {check.name} is {check.state or 'Pending'}{said}", advice)
    later = status.requeue_state.requeue_at if status.requeue_state is not None else None
    if later and is_to_come(what_if, later):
        return Held(
            f"it was evicted{why}, and is retried at {later}", "check why its pods did not become ready in time"
        )
    return None


def _in_line(
    what_if: WhatIfCluster,
    workload: observed_v1.KueueWorkload | None,
    queue: observed_v1.ClusterQueue | None,
    containers: Iterable[core_v1.Container],
) -> Held | None:
    """A workload that has to wait for another one, unless it asks for more than its queue could ever admit."""
    if workload is None or queue is None or too_much(queue, containers) is not None:
        return None
    return behind_another(what_if, workload, queue)


def _said(what_if: WhatIfCluster, workload: observed_v1.KueueWorkload | None, namespace: str, name: str) -> Held | None:
    if workload is None:
        return None
    for condition in workload.status.conditions:
        if condition.type in _ADMISSION and condition.status == "False" and condition.message:
            said = one_line(condition.message)
            advice = _ask(workload.metadata.namespace, workload)
            counted = short_of_quota(what_if, workload, cluster_queue_of(what_if, namespace, name), said)
            if counted is not None:
                return counted
            unmapped = _UNMAPPED.search(said)
            if unmapped is not None:
                return _not_mapped(what_if, namespace, name, unmapped["class_name"])
            uncountable = not_supported(what_if, workload, said)
            if uncountable is not None:
                return uncountable
            if "quota" in said:
                advice = "wait until others of the queue end, or raise the quota of its ClusterQueue"
            return Held(said, advice)
    return None


def _not_mapped(what_if: WhatIfCluster, namespace: str, queue: str, class_name: str) -> Held:
    """A DeviceClass for which Kueue's configuration has no resource name, so that it cannot count its devices."""
    local = what_if.get(observed_v1.LocalQueue, queue, namespace)
    asking = [
        (f'"{request.name}"', f"ResourceClaimTemplate {full_name(template)}")
        for template in what_if.all(ResourceClaimTemplate)
        if template.metadata.namespace == namespace
        for request in template.spec.spec.devices.requests
        for leaf in (request.exactly, *request.first_available)
        if leaf is not None and leaf.device_class_name == class_name
    ]
    config = next(
        (full_name(each) for each in what_if.all(observed_v1.ConfigMap) if each.metadata.name == _CONFIGURATION),
        f"kueue-system/{_CONFIGURATION}",
    )
    which = f", which request {asking[0][0]} of {asking[0][1]} asks for," if asking else ""
    text = f"DeviceClass {class_name}{which} is not in resources.deviceClassMappings of Kueue's configuration (ConfigMap {config})"
    covered = f" that ClusterQueue {local.spec.cluster_queue} has a quota for" if local is not None else ""
    advice = f"map DeviceClass {class_name} in resources.deviceClassMappings of ConfigMap {config} to a resource name{covered}, and restart kueue-controller-manager"
    advice += f"; or drop request {asking[0][0]} from {asking[0][1]}" if asking else ""
    return Held(text, advice)


# --- flavors ---


def by_flavor(what_if: WhatIfCluster, pod: core_v1.Pod, found: Diagnosis) -> Diagnosis:
    """A nodeSelector that Kueue has set from the labels of a ResourceFlavor is to be changed there, not in the pod or its Job."""
    maker = controller_reference(pod.metadata)
    owners = {pod.metadata.uid, maker.uid if maker is not None else ""}
    group = pod.metadata.labels.get(_QUEUED_GROUP_LABEL, "")
    for workload in what_if.all(observed_v1.KueueWorkload):
        admission = workload.status.admission
        ours = owners & {each.uid for each in workload.metadata.owner_references} or workload.metadata.name == group
        if admission is None or workload.metadata.namespace != pod.metadata.namespace or not ours:
            continue
        names = dict.fromkeys(flavor for each in admission.pod_set_assignments for flavor in each.flavors.values())
        for name in names:
            flavor = what_if.get(observed_v1.ResourceFlavor, name)
            if flavor is None or not flavor.spec.node_labels.items() & pod.spec.node_selector.items():
                continue
            if not any(f"nodeSelector {key}={value}" in found.text for key, value in flavor.spec.node_labels.items()):
                continue
            return _of_flavor(found, name)
    return found


def _of_flavor(found: Diagnosis, flavor: str) -> Diagnosis:
    where = f"nodeLabels of ResourceFlavor {flavor}"
    candidates = [
        replace(each, text=f"{text}, and recreate the workload, so that Kueue admits it again")
        if (text := each.text.replace("the pod's nodeSelector", where)) != each.text
        else each
        for each in found.candidates
    ]
    text = found.text.replace("the pod's nodeSelector ", f"the nodeSelector that Kueue sets from {where}, ", 1)
    return replace(found, text=text, candidates=tuple(candidates))
