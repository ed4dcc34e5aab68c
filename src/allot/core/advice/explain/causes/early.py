"""Causes before the scheduler's filters: gates, missing schedulers, incomplete groups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from allot.core.advice.explain.causes.claims import QUOTA, unusable
from allot.core.advice.explain.causes.keepers import idle_keeper, idle_scheduler
from allot.core.advice.explain.causes.kueue import KUEUE, held_by_kueue, queue_of
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, delete_of, patch_of, pointer
from allot.core.advice.explain.holding import FINISHED, controller_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.trial import DEFAULT_SCHEDULER, is_seen, schedulers_of_groups, schedulers_that_placed
from allot.core.advice.explain.wording import joined, named
from allot.core.advice.nearest import nearest
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster, as_json, meta
from allot.core.lifecycle.claim_owners import group_name
from allot.core.model import core_v1, observed_v1
from allot.core.model.apps_v1 import ReplicaSet, StatefulSet
from allot.core.model.batch_v1 import Job
from allot.core.model.scheduling_v1 import CompositePodGroup, PodGroup
from allot.core.quantity import Quantity
from allot.core.quota.amounts import parse_amounts
from allot.core.quota.pods import pod_usage
from allot.core.scheduling import (
    DIALECTS,
    GANG_SCHEDULING,
    SCHEDULING_GATES,
    Dialect,
    ForeignGroup,
    Status,
    dialect_of,
    group_key,
    minimum_of,
)

# Queue managers, by a part of the gate's name. Removing their gate by hand would jump the queue.
_GROUP_PLUGINS = frozenset((GANG_SCHEDULING, *(dialect.plugin for dialect in DIALECTS)))
_QUEUE_MANAGERS = {
    "kueue.x-k8s.io/": KUEUE,
    "volcano.sh/": "Volcano",
    "run.ai/": "KAI Scheduler",
    "yunikorn.apache.org/": "YuniKorn",
    "codeflare.dev/": "AppWrapper",
}
# Events that only schedulers write; and how similar a misspelt scheduler's name must be: "my-scheduler" is not "default-scheduler".
_SCHEDULERS_REASONS = ("Scheduled", "FailedScheduling", "Unschedulable", "Preempted")
_SAME_SCHEDULER_MIN = 0.85
_SHORT_MAX = 3
# Gates that someone opens by a decision.
_APPROVAL = re.compile(r"(?:approval|review|permission|clearance|consent|sign-?off)$", re.IGNORECASE)
_SEPARATOR = re.compile(r"[-_.]+")


def before_scheduling(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """Why the scheduler does not consider a pod; None if it does, or if only another pod of its gang is in the way. The scheduler's
    own gates decide; this module only words it."""
    metadata, spec = pod.metadata, pod.spec
    if metadata.deletion_timestamp is not None:
        return _being_deleted(pod)
    if not is_seen(what_if, spec.scheduler_name):
        return _no_scheduler(what_if, pod)
    closed = _closed(what_if, pod)
    if closed is None:
        return None
    if closed.plugin == SCHEDULING_GATES:
        return _gated(what_if, pod)
    if closed.plugin in _GROUP_PLUGINS:
        # A group is counted by its scheduler.
        return _idle(what_if, pod) or _group(what_if, pod)
    for entry in spec.resource_claims:
        found = unusable(what_if, pod, entry)
        if found is not None:
            return found
    return Diagnosis(reason=Reason.CLAIM_MISSING, text=", ".join(closed.reasons))


def _closed(what_if: WhatIfCluster, pod: core_v1.Pod) -> Status | None:
    """The gate that holds back the pod, or its gang as a whole."""
    closed = what_if.machine.closed(f"{pod.metadata.namespace}/{pod.metadata.name}")
    if closed is None or closed.pod is None or closed.pod is pod:
        return closed.status if closed is not None else None
    return what_if.machine.gates.closed_to(pod)


def _being_deleted(pod: core_v1.Pod) -> Diagnosis:
    metadata = pod.metadata
    kept = f", kept by {named('finalizer', metadata.finalizers)}" if metadata.finalizers else ""
    text = f"it was deleted at {metadata.deletion_timestamp} and is still terminating{kept}"
    return Diagnosis(reason=Reason.BEING_DELETED, text=text)


def _gated(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis:
    names = [gate.name for gate in pod.spec.scheduling_gates]
    queued = {name: manager for name in names for domain, manager in _QUEUE_MANAGERS.items() if domain in name}
    gates = named("scheduling gate", names)
    if queued:
        return _in_queue(what_if, pod, next(iter(queued.values())), gates)
    them = "it" if len(names) == 1 else "them"
    remove = patch_of(
        "Pod", pod.metadata.name, {"op": "remove", "path": "/spec/schedulingGates"}, namespace=pod.metadata.namespace
    )
    keeper = idle_keeper(what_if, names, f"removes the {'gate' if len(names) == 1 else 'gates'}")
    if keeper is not None:
        # What it waits for may be half done: by hand only if no one else does it.
        again = Candidate(rank=Rank.FIX, text=keeper.advice, patches=(remove,))
        by_hand = f"remove {gates} from the pod by hand, if what it waits for is done"
        text = f"it has {gates}, and {keeper.text}"
        return Diagnosis(reason=Reason.SCHEDULING_GATE, text=text, candidates=(again,), advice=(by_hand,))
    text = f"it has {gates}, which the component that set {them} has not removed yet"
    # Who set a gate knows what the pod waits for; by hand, the pod itself can be let go, and not only one that is created anew.
    candidate = Candidate(rank=Rank.FIX, text=_opened(names), patches=(remove,))
    operation = '[{"op":"remove","path":"/spec/schedulingGates"}]'
    by_hand = f"kubectl patch pod {pod.metadata.name} -n {pod.metadata.namespace} --type json -p '{operation}'"
    by_hand = f"if what it waits for is done, remove {gates} by hand: {by_hand}"
    return Diagnosis(reason=Reason.SCHEDULING_GATE, text=text, candidates=(candidate,), advice=(by_hand,))


def _opened(names: Sequence[str]) -> str:
    """How the controller that set gates removes them: after an approval, if their names speak of one."""
    gates = named("scheduling gate", names)
    wanted = [" ".join(_SEPARATOR.split(name.rpartition("/")[2])) for name in names if _APPROVAL.search(name)]
    if wanted:
        return f"get the {joined(wanted)}, so that the controller that set {gates} removes {'it' if len(names) == 1 else 'them'}"
    return f"let the controller that set {gates} remove {'it' if len(names) == 1 else 'them'}: see in its log what it waits for"


def _in_queue(what_if: WhatIfCluster, pod: core_v1.Pod, manager: str, gates: str) -> Diagnosis:
    """A pod that its queue manager has not released. Removing its gate by hand would jump the queue."""
    if manager != KUEUE:
        text = f"{manager} has not admitted it yet ({gates})"
        advice = f"ask {manager} why: its queue has no quota left, is stopped, or does not exist"
        return Diagnosis(reason=Reason.SCHEDULING_GATE, text=text, advice=(advice,))
    queue = queue_of(pod.metadata)
    held = held_by_kueue(what_if, "pod", pod.metadata, pod.spec.containers)
    text = f"{manager} has not admitted it{f' from queue {queue}' if queue else ''} yet"
    text += f": {held.text}" if held.text else f" ({gates})"
    return Diagnosis(reason=Reason.SCHEDULING_GATE, text=text, advice=(held.advice, *held.others))


def _schedulers(what_if: WhatIfCluster) -> list[str]:
    """Schedulers that have left a trace, and the default one."""
    reported = {
        event.reporting_component for event in what_if.all(observed_v1.Event) if event.reason in _SCHEDULERS_REASONS
    }
    known = reported | schedulers_that_placed(what_if) | schedulers_of_groups(what_if) | {DEFAULT_SCHEDULER}
    return sorted(known - {""})


def _no_scheduler(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis:
    idle = _idle(what_if, pod)
    if idle is not None:
        return idle
    name = pod.spec.scheduler_name
    meant = nearest(name, _schedulers(what_if), likeness_min=_SAME_SCHEDULER_MIN)
    names = dict.fromkeys((meant or DEFAULT_SCHEDULER, DEFAULT_SCHEDULER))
    hint = f' (did you mean "{meant}"?)' if meant is not None else ""
    text = (
        f'its spec.schedulerName is "{name}", but no scheduler of that name is known in this cluster: it has placed no pod and '
        f"written no event{hint}"
    )
    return Diagnosis(
        reason=Reason.NO_SUCH_SCHEDULER,
        text=text,
        candidates=tuple(
            _other_scheduler(pod, each, rank) for each, rank in zip(names, (Rank.FIX, Rank.RELAX), strict=False)
        ),
        advice=(f"start scheduler {name}",),
    )


def _idle(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """A scheduler of its own that a pod asks for and that does not run."""
    name = pod.spec.scheduler_name
    idle = idle_scheduler(what_if, name) if name != DEFAULT_SCHEDULER else None
    if idle is None:
        return None
    text = f"its scheduler {name} does not run: {idle.text}"
    return Diagnosis(reason=Reason.COMPONENT_DOWN, text=text, advice=(idle.advice,))


def _other_scheduler(pod: core_v1.Pod, name: str, rank: int) -> Candidate:
    operation = {"op": "add", "path": "/spec/schedulerName", "value": name}
    change = patch_of("Pod", pod.metadata.name, operation, namespace=pod.metadata.namespace, recreate=True)
    return Candidate(rank=rank, text=f"set spec.schedulerName to {name}", patches=(change,))


# --- groups ---


def _group(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis:
    namespace = pod.metadata.namespace
    key = what_if.cluster.membership.key(pod)
    dialect = dialect_of(key)
    name = key.partition("/")[2].split(":")[1 if ":" in key else 0]
    group = what_if.group_of(pod)
    parts = what_if.cluster.membership.parts(namespace, f"{dialect.api_group}:{name}") if dialect is not None else ()
    if parts:
        closed = what_if.machine.closed(f"{namespace}/{pod.metadata.name}")
        said = "; ".join(closed.status.reasons) if closed is not None else "its parts are not complete"
        return Diagnosis(
            reason=Reason.GROUP_INCOMPLETE,
            text=f"PodGroup {namespace}/{name} starts in parts: {said}",
            advice=("create the missing pods",),
        )
    if group is None and dialect_of(key) is not None:
        text = (
            f"it belongs to {key.partition('/')[2].partition(':')[0]} PodGroup {namespace}/{name}, which does not exist"
        )
        known = [meta(found) for found in what_if.all(dialect.type)] if dialect is not None else []
        meant = nearest(name, [each.name for each in known if each.namespace == namespace])
        right = _renamed_group(pod, name, meant) if meant is not None else None
        return Diagnosis(
            reason=Reason.GROUP_MISSING,
            candidates=(right.candidate(meant),) if right is not None and meant is not None else (),
            text=text + (f' (did you mean "{meant}"?)' if meant is not None else ""),
        )
    if group is None:
        others = [found.metadata.name for found in what_if.all(PodGroup) if found.metadata.namespace == namespace]
        meant = nearest(name, others)
        hint = f' (did you mean "{meant}"?)' if meant is not None else ""
        return Diagnosis(
            reason=Reason.GROUP_MISSING,
            text=f"it belongs to PodGroup {namespace}/{name}, which does not exist{hint}",
            candidates=tuple(_new_group(what_if, namespace, name)),
        )
    unit = what_if.machine.unit_of(f"{namespace}/{pod.metadata.name}")
    if group.spec.parent_composite_pod_group_name and (unit is None or unit.tree is not None or unit.group is None):
        return _tree_incomplete(what_if, group)
    minimum = minimum_of(group)
    unit = what_if.machine.unit_of(group_key(key))
    there = what_if.cluster.scheduled_count(group) + (len(unit.pods) if unit is not None else 0)
    members = [found for found in what_if.all(core_v1.Pod) if what_if.group_of(found) is group]
    text = f"PodGroup {namespace}/{name} needs {minimum} pods to start, but only {there} {'exists' if there == 1 else 'exist'}"
    over = [pod for pod in members if pod.status.phase in FINISHED or pod.metadata.deletion_timestamp is not None]
    if over:
        text = f"{text}: {_how_over(over)}"
    astray = _astray(what_if, namespace, name, dialect)
    if astray is not None and not over:
        label = f"{astray.label}: {astray.written}"
        return Diagnosis(
            reason=Reason.GROUP_INCOMPLETE,
            text=f"{text}: pod {astray.pod.metadata.name} names another one, which does not exist ({label})",
            candidates=(astray.candidate(name),),
        )
    stopped = _stopped_by_quota(what_if, members, minimum - there)
    if stopped is not None:
        return replace(stopped, text=f"{text}: {stopped.text}")
    path, field = minimum_path(group)
    lower = patch_of(
        "PodGroup",
        name,
        {"op": "replace", "path": path, "value": there},
        namespace=namespace,
        recreate=True,
    )
    maker = _maker(what_if, members)
    if maker is not None and not over:
        text += f": {maker.text}"
    anew = () if over else tuple(_made_anew(members, minimum - there, maker.more(minimum) if maker is not None else ""))
    return Diagnosis(
        reason=Reason.GROUP_INCOMPLETE,
        text=text,
        candidates=(
            *_made_again(over, minimum - there),
            *anew,
            Candidate(rank=Rank.FEWER, text=f"lower {field} to {there}", patches=(lower,)),
        ),
        advice=() if over or anew else ("create the missing pods",),
    )


class _Astray(NamedTuple):
    """A pod that seems to belong to a group but misspells its name. patch: sets the right one."""

    pod: core_v1.Pod
    label: str
    written: str
    patch: Patch

    def candidate(self, name: str) -> Candidate:
        """The pod names the right group."""
        text = f"set {self.label}: {name} instead of {self.written} on pod {self.pod.metadata.name}"
        return Candidate(rank=Rank.FIX, text=text, patches=(self.patch,))


def _astray(what_if: WhatIfCluster, namespace: str, name: str, dialect: Dialect | None) -> _Astray | None:
    """A pod of the namespace that names a missing group with a similar name."""
    for pod in what_if.all(core_v1.Pod):
        key = what_if.cluster.membership.key(pod) if pod.metadata.namespace == namespace else ""
        written = key.partition("/")[2].rpartition(":")[2]
        if not key or dialect_of(key) is not dialect or what_if.group_of(pod) is not None or written == name:
            continue
        if pod.spec.node_name or nearest(written, [name]) is None:
            continue
        return _renamed_group(pod, written, name)
    return None


def _renamed_group(pod: core_v1.Pod, written: str, name: str) -> _Astray | None:
    """A pod that names another group; None if it is unclear where it does."""
    metadata = pod.metadata
    for member, words in (("labels", metadata.labels), ("annotations", metadata.annotations)):
        label = next((label for label, value in words.items() if value == written and "group" in label), None)
        if label is not None:
            operation = {"op": "replace", "path": f"/metadata/{member}/{pointer(label)}", "value": name}
            return _Astray(pod, label, written, patch_of("Pod", metadata.name, operation, namespace=metadata.namespace))
    if pod.spec.scheduling_group is None:
        return None
    operation = {"op": "replace", "path": "/spec/schedulingGroup/podGroupName", "value": name}
    patch = patch_of("Pod", metadata.name, operation, namespace=metadata.namespace, recreate=True)
    return _Astray(pod, "spec.schedulingGroup.podGroupName", written, patch)


def _tree_incomplete(what_if: WhatIfCluster, group: PodGroup) -> Diagnosis:
    """A CompositePodGroup that does not exist, or has too few groups with enough pods."""
    namespace, parent = group.metadata.namespace, group.spec.parent_composite_pod_group_name or ""
    if what_if.get(CompositePodGroup, parent, namespace) is None:
        text = f"its PodGroup belongs to CompositePodGroup {namespace}/{parent}, which does not exist"
        return Diagnosis(reason=Reason.GROUP_MISSING, text=text)
    text = f"CompositePodGroup {namespace}/{parent} has too few groups whose pods all exist"
    short = _short_of_pods(what_if, namespace, parent)
    if not short:
        return Diagnosis(reason=Reason.GROUP_INCOMPLETE, text=text, advice=("create the missing groups and pods",))
    parts = [f"PodGroup {name} has {there} of {minimum} pods" for name, there, minimum in short]
    text = f"CompositePodGroup {namespace}/{parent} starts its groups together, and {joined(parts[:_SHORT_MAX])}"
    name, there, minimum = short[0]
    lacking = minimum - there
    advice = f"create {lacking} more {'pod' if lacking == 1 else 'pods'} of PodGroup {name}"
    return Diagnosis(reason=Reason.GROUP_INCOMPLETE, text=text, advice=(advice,))


def _short_of_pods(what_if: WhatIfCluster, namespace: str, parent: str) -> list[tuple[str, int, int]]:
    """Groups of a composite group that have fewer pods than they need: name, how many there are, how many are needed."""
    found = []
    for group in what_if.all(PodGroup):
        if (group.metadata.namespace, group.spec.parent_composite_pod_group_name) != (namespace, parent):
            continue
        there = [pod for pod in _members(what_if, namespace, group.metadata.name) if pod.status.phase not in FINISHED]
        if len(there) < minimum_of(group):
            found.append((group.metadata.name, len(there), minimum_of(group)))
    return sorted(found)


def _how_over(pods: Sequence[core_v1.Pod]) -> str:
    failed = [pod.metadata.name for pod in pods if pod.status.phase in FINISHED]
    going = [pod.metadata.name for pod in pods if pod.status.phase not in FINISHED]
    texts = [f"{named('pod', failed)} {'has' if len(failed) == 1 else 'have'} ended"] if failed else []
    texts += [f"{named('pod', going)} {'is' if len(going) == 1 else 'are'} being deleted"] if going else []
    return joined(texts)


def _made_again(over: Sequence[core_v1.Pod], lacking: int) -> Iterator[Candidate]:
    """Ended pods, recreated."""
    some = [pod for pod in over if pod.status.phase in FINISHED][:lacking]
    if not some or len(some) < lacking:
        return
    patches = []
    for pod in some:
        namespace, name = pod.metadata.namespace, pod.metadata.name
        object_ = as_json(pod)
        spec = {key: value for key, value in object_["spec"].items() if key != "nodeName"}
        kept = {"labels": dict(pod.metadata.labels), "annotations": dict(pod.metadata.annotations)}
        metadata = {"namespace": namespace, "name": name, **kept}
        patches += [delete_of("Pod", name, namespace)]
        patches += [
            Patch(action="create", object={"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        ]
    text = f"create {named('pod', [pod.metadata.name for pod in some])} again"
    yield Candidate(rank=Rank.CREATE, text=text, patches=tuple(patches))


class _Maker(NamedTuple):
    """A workload that creates all pods of a gang. many: how many it creates; field: the field with that number."""

    kind: str
    name: str
    field: str
    many: int

    @property
    def text(self) -> str:
        """How many it creates."""
        return f"{self.kind} {self.name}, which creates them, has {self.field} {self.many}"

    def more(self, minimum: int) -> str:
        """How to make it create enough."""
        fields = "parallelism and completions" if self.kind == "Job" else self.field
        return f"raise {fields} of {self.kind} {self.name} to {minimum}"


def _maker(what_if: WhatIfCluster, members: Sequence[core_v1.Pod]) -> _Maker | None:
    """The one workload that creates the pods of a gang but no more of them; None if there is none, or several."""
    makers = {(maker.kind, maker.name) for pod in members if (maker := controller_of(pod)) is not None}
    namespace = members[0].metadata.namespace if members else ""
    for kind, name in makers if len(makers) == 1 else ():
        job = what_if.get(Job, name, namespace) if kind == "Job" else None
        if job is not None and job.spec.parallelism is not None:
            return _Maker(kind, name, "parallelism", job.spec.parallelism)
        sets = (what_if.get(StatefulSet, name, namespace), what_if.get(ReplicaSet, name, namespace))
        for each in sets:
            if each is not None and type(each).__name__ == kind and each.spec.replicas is not None:
                return _Maker(kind, name, "replicas", each.spec.replicas)
    return None


def _made_anew(members: Sequence[core_v1.Pod], lacking: int, how: str = "") -> Iterator[Candidate]:
    """More pods like an existing one. how: what makes their workload create more."""
    like = next((pod for pod in members if pod.status.phase not in FINISHED and not pod.spec.node_name), None)
    if like is None or any(entry.resource_claim_name for entry in like.spec.resource_claims):
        return
    spec = {key: value for key, value in as_json(like)["spec"].items() if key != "nodeName"}
    kept = {"labels": dict(like.metadata.labels), "annotations": dict(like.metadata.annotations)}
    patches = []
    for number in range(lacking):
        metadata = {"namespace": like.metadata.namespace, "name": f"{like.metadata.name}-new-{number}", **kept}
        object_ = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        patches.append(Patch(action="create", object=object_))
    text = how or f"create the missing {'pod' if lacking == 1 else f'{lacking} pods'}, like {like.metadata.name}"
    yield Candidate(rank=Rank.CREATE, text=text, patches=tuple(patches))


def minimum_path(group: PodGroup) -> tuple[str, str]:
    """Where a group says how many pods it needs at once, and the name of that field."""
    if isinstance(group, ForeignGroup):
        return "/spec/minMember", "minMember"
    return "/spec/schedulingPolicy/gang/minCount", "minCount"


def _stopped_by_quota(what_if: WhatIfCluster, members: Sequence[core_v1.Pod], lacking: int) -> Diagnosis | None:
    """A quota that prevents the creation of more pods; None if it has room by now. lacking: how many pods are missing."""
    makers = {owner.uid for pod in members for owner in pod.metadata.owner_references}
    for event in what_if.all(observed_v1.Event):
        found = QUOTA.search(event.message) if event.involved_object.uid in makers else None
        if found is None:
            continue
        namespace = event.involved_object.namespace or event.metadata.namespace
        quota = what_if.get(observed_v1.ResourceQuota, found["quota"], namespace)
        if quota is None:
            continue
        asked = parse_amounts(dict(part.split("=", 1) for part in found["requested"].split(",") if "=" in part))
        short = _exceeded(quota, asked, 1)
        if not short:
            continue
        what = joined([f"{quota.status.used[name]} of {quota.spec.hard[name]} {name} in use" for name in short])
        # The refusal names only what one more pod has too little of.
        like = next((pod for pod in members if pod.status.phase not in FINISHED), None)
        each = {**(pod_usage(as_json(like), "") if like is not None else {}), **asked}
        enough = _exceeded(quota, each, max(1, lacking))
        whole = joined([f"{name}={amount}" for name, amount in enough.items()])
        room = f", which is enough for the {lacking} missing pods" if lacking > 1 else ""
        maker = f"{event.involved_object.kind} {event.involved_object.name}"
        return Diagnosis(
            reason=Reason.QUOTA,
            text=f"ResourceQuota {namespace}/{found['quota']} keeps {maker} from creating more ({what})",
            advice=(f"raise ResourceQuota {namespace}/{found['quota']} to at least {whole}{room}",),
        )
    return None


def _exceeded(quota: observed_v1.ResourceQuota, each: Mapping[str, Quantity], many: int) -> dict[str, Quantity]:
    """What a quota would have to allow for some more pods, of which each needs the same; without what it does allow."""
    hard, used = quota.spec.hard, quota.status.used
    needed = {
        name: Quantity.from_nano(used[name].nano + many * amount.nano, hard[name].format)
        for name, amount in each.items()
        if name in hard and name in used
    }
    return {name: amount for name, amount in needed.items() if amount.nano > hard[name].nano}


def _members(what_if: WhatIfCluster, namespace: str, name: str) -> list[core_v1.Pod]:
    return [
        found
        for found in what_if.all(core_v1.Pod)
        if found.metadata.namespace == namespace and group_name(found) == name
    ]


def _new_group(what_if: WhatIfCluster, namespace: str, name: str) -> Iterator[Candidate]:
    """A PodGroup for the pods that name it."""
    members = _members(what_if, namespace, name)
    priority = {pod.spec.priority or 0 for pod in members}
    spec = {"schedulingPolicy": {"gang": {"minCount": len(members)}}, "priority": min(priority)}
    metadata = {"namespace": namespace, "name": name}
    object_ = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    text = f"create PodGroup {namespace}/{name} with minCount {len(members)}"
    yield Candidate(rank=Rank.CREATE, text=text, patches=(Patch(action="create", object=object_),))


def unequal_priority(group: PodGroup, pods: Sequence[core_v1.Pod]) -> Diagnosis | None:
    """A group whose priority differs from its pods': the scheduler refuses it as a whole."""
    wanted = group.spec.priority or 0
    others = [pod for pod in pods if (pod.spec.priority or 0) != wanted]
    if not others:
        return None
    namespace, name, first = group.metadata.namespace, group.metadata.name, others[0]
    class_ = group.spec.priority_class_name
    shown = f" (PriorityClass {class_})" if class_ else ""
    text = (
        f"PodGroup {namespace}/{name} has priority {wanted}{shown}, but {named('pod', [pod.metadata.name for pod in others])} "
        f"{'has' if len(others) == 1 else 'have'} {first.spec.priority or 0}: a group and its pods need the same priority"
    )
    operations: list[dict[str, object]] = [{"op": "add", "path": "/spec/priority", "value": wanted}]
    if class_:
        operations.append({"op": "add", "path": "/spec/priorityClassName", "value": class_})
    elif any(pod.spec.priority_class_name for pod in others):
        operations.append({"op": "add", "path": "/spec/priorityClassName", "value": ""})
    to_pods = tuple(
        patch_of("Pod", pod.metadata.name, *operations, namespace=namespace, recreate=True) for pod in others
    )
    what = f"priorityClassName: {class_}" if class_ else f"priority {wanted}"
    own = first.spec.priority or 0
    removed = [{"op": "remove", "path": "/spec/priorityClassName"}] if class_ else []
    to_group = patch_of(
        "PodGroup",
        name,
        {"op": "add", "path": "/spec/priority", "value": own},
        *removed,
        namespace=namespace,
        recreate=True,
    )
    return Diagnosis(
        reason=Reason.GROUP_PRIORITY,
        text=text,
        candidates=(
            Candidate(rank=Rank.FIX, text=f"give the pods the group's priority: {what}", patches=to_pods),
            Candidate(rank=Rank.RELAX, text=f"give PodGroup {name} the pods' priority: {own}", patches=(to_group,)),
        ),
    )
