"""How pods are related: which object makes them, and devices held by other replicas or by those that an update is about to replace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from allot.core.advice.explain.holding import Possessor, are_siblings, controller_of, holders_text
from allot.core.advice.explain.wording import joined, named
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model.apps_v1 import Deployment, ReplicaSet, StatefulSet
from allot.core.model.batch_v1 import Job
from allot.core.model.meta import ObjectMeta, OwnerReference
from allot.core.workloads.ownership import controller_reference

# Others may make these in turn: a CronJob makes Jobs.
_MADE: dict[str, type[Deployment | ReplicaSet | StatefulSet | Job]] = {
    each.__name__: each for each in (Deployment, ReplicaSet, StatefulSet, Job)
}
_LEVELS_MAX = 8
_WITH_REPLICAS = ("ReplicaSet", "StatefulSet")
_MANY_MIN = 4
_GROUPS_MAX = 3


def by_workload(what_if: WhatIfCluster, pods: Sequence[core_v1.Pod]) -> str:
    """`6 pods of Job default/a, 1 of Deployment default/b and pod default/c`, for many pods of few workloads; empty for others."""
    numbers = Counter(
        f"of {maker}" if (maker := made_by(what_if, pod)) else f"pod {full_name(pod)}"
        for pod in {full_name(pod): pod for pod in pods}.values()
    )
    if numbers.total() < _MANY_MIN or len(numbers) > min(_GROUPS_MAX, numbers.total() // 2):
        return ""
    made = [f"{number} {who}" for who, number in numbers.items() if who.startswith("of ")]
    made[0] = made[0].replace(" of ", " pods of " if not made[0].startswith("1 ") else " pod of ", 1)
    return joined([*made, *(who for who in numbers if not who.startswith("of "))])


def pods_text(what_if: WhatIfCluster, pods: Sequence[core_v1.Pod]) -> str:
    """Pods by what makes them if they are many, otherwise by their names."""
    return by_workload(what_if, pods) or named("pod", map(full_name, pods))


def possessors_text(what_if: WhatIfCluster, found: Sequence[Possessor], more: int = 0) -> str:
    """Holders by what makes them if they are many and nothing is odd about them, otherwise by their names. more: how many are not in
    the list."""
    users = [pod for each in found for pod in each.running]
    plain = (
        not more and len(users) == len(found) and not any(each.done or each.ending or each.stranded for each in found)
    )
    return (by_workload(what_if, users) if plain else "") or holders_text(found, more)


def made_by(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    """`Deployment default/a`: what makes a pod, a Deployment instead of its ReplicaSet; empty if nothing does."""
    maker = controller_of(pod)
    if maker is None:
        return ""
    deployment = deployment_of(what_if, pod)
    return f"{'Deployment' if deployment else maker.kind} {pod.metadata.namespace}/{deployment or maker.name}"


def related_text(what_if: WhatIfCluster, pod: core_v1.Pod, found: Sequence[Possessor], more: int = 0) -> str:
    """Holders that may be replicas of a pod: these by their names, as it is said afterwards what makes them."""
    replicas = are_siblings(pod, [user for each in found for user in each.running])
    if replicas and not deployment_of(what_if, pod):
        return holders_text(found, more)
    return possessors_text(what_if, found, more)


def kinship(what_if: WhatIfCluster, pod: core_v1.Pod, users: Sequence[core_v1.Pod]) -> str:
    """How the holders of devices relate to the waiting pod: pods of its controller, or of its predecessor."""
    own = controller_of(pod)
    if own is None or not users:
        return ""
    if are_siblings(pod, users):
        return f", {'another pod' if len(users) == 1 else 'the other pods'} of {own.kind} {own.name}"
    deployments = {deployment_of(what_if, each) for each in users}
    if deployments == {deployment_of(what_if, pod)} and "" not in deployments:
        return f", which the update of Deployment {deployments.pop()} replaces"
    return ""


def origin(what_if: WhatIfCluster, metadata: ObjectMeta) -> OwnerReference | None:
    """The topmost object that an object is made from, as far as known; only a change there lasts. None if nobody made it."""
    found: OwnerReference | None = None
    for _ in range(_LEVELS_MAX):
        above = controller_reference(metadata)
        type_ = _MADE.get(above.kind) if above is not None else None
        made = what_if.get(type_, above.name, metadata.namespace) if above is not None and type_ is not None else None
        found = above or found
        if made is None or above is None or made.metadata.uid != above.uid:
            break
        metadata = made.metadata
    return found


def deployment_of(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    """The Deployment of a pod; empty if unknown."""
    maker = controller_of(pod)
    made_by = what_if.get(ReplicaSet, maker.name, pod.metadata.namespace) if maker is not None else None
    owners = made_by.metadata.owner_references if made_by is not None else ()
    return next((each.name for each in owners if each.kind == "Deployment"), "")


def kin_advice(what_if: WhatIfCluster, pod: core_v1.Pod, text: str) -> tuple[str, ...]:
    """Remedies if related pods hold the devices."""
    own = controller_of(pod)
    name = deployment_of(what_if, pod)
    if own is None:
        return ()
    if "which the update of Deployment" in text:
        return (f"let the update delete old pods first: maxSurge: 0 and maxUnavailable: 1 in Deployment {name}",)
    if f"of {own.kind} {own.name}" in text:
        return (f"run fewer replicas of {f'Deployment {name}' if name else f'{own.kind} {own.name}'}",)
    return ()


def fewer_replicas(what_if: WhatIfCluster, pod: core_v1.Pod, others: Sequence[core_v1.Pod]) -> tuple[str, ...]:
    """As many replicas as have what only some can have; nothing for a pod without such others, or one that waits its turn."""
    own = controller_of(pod)
    if own is None or own.kind not in _WITH_REPLICAS or not are_siblings(pod, others):
        return ()
    name = deployment_of(what_if, pod)
    number = len({each.metadata.uid for each in others})
    workload = f"Deployment {name}" if name else f"{own.kind} {own.name}"
    return (
        f"run {number if number == 1 else f'at most {number}'} {'replica' if number == 1 else 'replicas'} of {workload}",
    )
