"""Changes to queues and their jobs: higher limits and quotas, shorter guaranteed run times, another queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from allot.core.advice.explain.diagnosis import Candidate, Rank, patch_of, pointer
from allot.core.advice.explain.holding import controller_of
from allot.core.advice.explain.wording import joined, named
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster, as_json, meta
from allot.core.model import apps_v1, batch_v1, core_v1
from allot.core.model.foreign_groups import KaiPodGroup
from allot.core.model.meta import OwnerReference
from allot.core.model.team_queues import KaiQueue, VolcanoQueue
from allot.core.quantity import Quantity
from allot.core.scheduling import (
    PREEMPTIBILITY_LABEL,
    QUEUE_LABEL,
    UNLIMITED,
    VOLCANO_QUEUE,
    Amounts,
    ForeignGroup,
    Job,
    QueueShares,
    amounts_text,
)

LIMIT = "limit"
QUOTA = "quota"
_NANO = 10**9
_MEGABYTE = 10**6
_VOLCANO_FIELDS = {LIMIT: "capability", QUOTA: "deserved"}
_KAI_RESOURCES = ("gpu", "cpu", "memory")


# --- bounds ---


def higher(
    what_if: WhatIfCluster, field: str, queue: QueueShares, request: Amounts, *, firmly: bool = False
) -> Candidate:
    """Raise the limit or quota of a queue and its parents by what a job asks for. firmly: count only what cannot be
    preempted."""
    patches: list[Patch] = []
    texts: list[str] = []
    for level in queue.path():
        wanted: dict[str, int] = {}
        limits: dict[str, int] = {}
        for resource, share in level.shares.items():
            held = share.allocated_firmly if firmly else share.allocated
            amount = held + request.get(resource, 0)
            bound = share.limit if field == LIMIT else share.deserved
            if request.get(resource, 0) and bound != UNLIMITED and amount > bound:
                wanted[resource] = amount
            if field == QUOTA and request.get(resource, 0) and share.limit != UNLIMITED and amount > share.limit:
                limits[resource] = amount
        if wanted:
            texts.append(f"the {field} of queue {level.name} to {amounts_text(wanted)}")
            patches += bounds_set(what_if, level.name, field, wanted)
        if limits:
            texts.append(f"the limit of queue {level.name} to {amounts_text(limits)}")
            patches += bounds_set(what_if, level.name, LIMIT, limits)
    return Candidate(rank=Rank.ADMIN, text=f"raise {joined(texts)}", patches=tuple(patches))


def without_limit(what_if: WhatIfCluster, name: str, resource: str) -> Candidate | None:
    """A queue of KAI that leaves out a limit gets no limit, and not none of the resource; None if it has one."""
    queue = what_if.get(KaiQueue, name)
    resources = queue.spec.resources if queue is not None else None
    if (
        queue is None
        or resource not in _KAI_RESOURCES
        or resources is None
        or getattr(resources, resource).limit is not None
    ):
        return None
    operation = _set(as_json(queue), ("spec", "resources", resource, LIMIT), -1)
    text = f"set spec.resources.{resource}.limit: -1 (unlimited) in queue {name}"
    return Candidate(rank=Rank.FIX, text=text, patches=(patch_of("Queue", name, operation),))


def bounds_set(what_if: WhatIfCluster, name: str, field: str, amounts: Amounts) -> Iterator[Patch]:
    """The patch that makes these amounts a queue's limit or quota, in its dialect."""
    queue = what_if.get(KaiQueue, name) or what_if.get(VolcanoQueue, name)
    if isinstance(queue, KaiQueue):
        values: dict[tuple[str, ...], Any] = {
            ("spec", "resources", resource, field): _kai_number(resource, amount)
            for resource, amount in amounts.items()
            if resource in _KAI_RESOURCES
        }
    elif isinstance(queue, VolcanoQueue):
        values = {
            ("spec", _VOLCANO_FIELDS[field], resource): _volcano_text(resource, amount)
            for resource, amount in amounts.items()
        }
    else:
        return
    current = as_json(queue)
    operations = []
    for path, value in values.items():
        operations.append(_set(current, path, value))
    if operations:
        yield patch_of("Queue", name, *operations)


def _kai_number(resource: str, amount: int) -> int | float:
    """In devices, millicores and megabytes, rounded up."""
    unit = _NANO * (_MEGABYTE if resource == "memory" else 1)
    if resource == "gpu":
        return amount // unit if amount % unit == 0 else amount / unit
    return -(-amount // unit)


def _volcano_text(resource: str, amount: int) -> str:
    return f"{-(-amount // _NANO)}m" if resource == "cpu" else str(Quantity.from_nano(amount))


def _set(value: dict[str, Any], path: tuple[str, ...], leaf: Any) -> dict[str, Any]:
    """The operation that sets a field and creates its missing parents; the value is changed too."""
    at = value
    for index, step in enumerate(path[:-1]):
        if not isinstance(at.get(step), dict):
            new = leaf
            for name in reversed(path[index + 1 :]):
                new = {name: new}
            at[step] = new
            return {"op": "add", "path": _joined(path[: index + 1]), "value": new}
        at = at[step]
    at[path[-1]] = leaf
    return {"op": "add", "path": _joined(path), "value": leaf}


def _joined(path: tuple[str, ...]) -> str:
    return "/" + "/".join(map(pointer, path))


# --- the job ---


def preemptible(job: Job) -> Candidate:
    """A preemptible job may use more than the guaranteed amount."""
    text = f"make {job.name} preemptible ({PREEMPTIBILITY_LABEL}: preemptible)"
    group = job.group
    if isinstance(group, ForeignGroup) and group.preemptibility:
        metadata = group.metadata
        operation = {"op": "add", "path": "/spec/preemptibility", "value": "preemptible"}
        patches = [patch_of("PodGroup", metadata.name, operation, namespace=metadata.namespace)]
        text = f"make PodGroup {metadata.name} preemptible (spec.preemptibility: preemptible)"
    else:
        patches = list(_labelled(job, PREEMPTIBILITY_LABEL, "preemptible"))
    return Candidate(rank=Rank.RELAX, text=text, patches=tuple(patches))


def elsewhere(what_if: WhatIfCluster, job: Job, queue: str) -> Candidate:
    """The same job in another queue."""
    group = job.group
    pod = job.tasks[0].pod
    maker = _labelled_maker(what_if, pod)
    patches: list[Patch] = []
    where = ""
    if QUEUE_LABEL in pod.metadata.labels:
        patches, where = list(_labelled(job, QUEUE_LABEL, queue)), f"label {QUEUE_LABEL}: {queue}"
    elif VOLCANO_QUEUE in pod.metadata.annotations:
        path = f"/metadata/annotations/{pointer(VOLCANO_QUEUE)}"
        operation = {"op": "add", "path": path, "value": queue}
        patches = [
            patch_of("Pod", task.pod.metadata.name, operation, namespace=task.pod.metadata.namespace)
            for task in job.tasks
        ]
        where = f"annotation {VOLCANO_QUEUE}: {queue}"
    if isinstance(group, ForeignGroup) and group.queue:
        # Made from the pods, or by the user: it decides.
        metadata = group.metadata
        operation = {"op": "add", "path": "/spec/queue", "value": queue}
        patches.append(patch_of("PodGroup", metadata.name, operation, namespace=metadata.namespace))
        if maker is not None:
            where = f"label {QUEUE_LABEL}: {queue} on {maker.kind} {maker.name}, which must be recreated"
        elif where and metadata.owner_references:
            where += ", and recreate the pod" if len(job.tasks) == 1 else ", and recreate the pods"
        else:
            where = f"spec.queue: {queue} of PodGroup {metadata.name}"
    if not patches:
        patches, where = list(_labelled(job, QUEUE_LABEL, queue)), f"label {QUEUE_LABEL}: {queue}"
    return Candidate(rank=Rank.FIX, text=f"put {job.name} into queue {queue} ({where})", patches=tuple(patches))


def _labelled_maker(what_if: WhatIfCluster, pod: core_v1.Pod) -> OwnerReference | None:
    """The owner of a pod, if its label names the queue."""
    maker = controller_of(pod)
    types = {each.__name__: each for each in (batch_v1.Job, apps_v1.ReplicaSet, apps_v1.StatefulSet)}
    type_ = types.get(maker.kind) if maker is not None else None
    found = what_if.get(type_, maker.name, pod.metadata.namespace) if type_ is not None and maker is not None else None
    return maker if found is not None and QUEUE_LABEL in meta(found).labels else None


def _labelled(job: Job, label: str, value: str) -> Iterator[Patch]:
    for task in job.tasks:
        metadata = task.pod.metadata
        operation: dict[str, Any] = {"op": "add", "path": f"/metadata/labels/{pointer(label)}", "value": value}
        if not metadata.labels:
            operation = {"op": "add", "path": "/metadata/labels", "value": {label: value}}
        yield patch_of("Pod", metadata.name, operation, namespace=metadata.namespace)


# --- the queue ---


def opened(what_if: WhatIfCluster, name: str) -> Iterator[Candidate]:
    """Reopen a closed queue."""
    if what_if.get(VolcanoQueue, name) is not None:
        patch = patch_of("Queue", name, {"op": "add", "path": "/status/state", "value": "Open"})
        yield Candidate(rank=Rank.ADMIN, text=f"open queue {name}", patches=(patch,))


def at_the_top(what_if: WhatIfCluster, name: str) -> Iterator[Candidate]:
    """Drop a queue's missing parent."""
    queue = what_if.get(KaiQueue, name) or what_if.get(VolcanoQueue, name)
    if queue is None:
        return
    field = "parentQueue" if isinstance(queue, KaiQueue) else "parent"
    patch = patch_of("Queue", name, {"op": "add", "path": f"/spec/{field}", "value": ""})
    yield Candidate(rank=Rank.RELAX, text=f"drop {field} of queue {name}", patches=(patch,))


def shorter_runtime(what_if: WhatIfCluster, fields: Mapping[str, str]) -> Iterator[Candidate]:
    """Queues release their pods at once. fields: the name of the guaranteed run time field, by queue."""
    names = [name for name in fields if what_if.get(KaiQueue, name) is not None]
    if names:
        patches = tuple(
            patch_of("Queue", name, {"op": "add", "path": f"/spec/{fields[name]}", "value": "0s"}) for name in names
        )
        text = f"set {fields[names[0]]} of {named('queue', names)} to 0s, so that their pods can be preempted at once"
        yield Candidate(rank=Rank.OTHERS, text=text, patches=patches)


def without_delay(what_if: WhatIfCluster, job: Job) -> Iterator[Candidate]:
    """A group preempts without delay."""
    namespace, _, name = job.name.partition("/")
    if what_if.get(KaiPodGroup, name, namespace) is not None:
        patch = patch_of("PodGroup", name, {"op": "remove", "path": "/spec/preemptionDelay"}, namespace=namespace)
        yield Candidate(rank=Rank.RELAX, text=f"drop preemptionDelay of PodGroup {name}", patches=(patch,))
