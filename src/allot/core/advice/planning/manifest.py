"""Turns the objects of a manifest into the definition of one copy.

A copy of a Pod is a pod; of a Deployment, Job or similar, one of its pods; of a PodGroup, the whole gang. A claim in the manifest is
copied with the pods that name it, but shared by all copies if the pods belong to a workload, as in a cluster. Claims
without pods are a copy by themselves, as if a pod without other needs used them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from allot.core.advice.planning.copies import Manifest, Name, as_group, dialect_for, parts_of
from allot.core.advice.planning.priorities import priorities_of, with_priority
from allot.core.advice.snapshot import NotInSnapshots, Snapshot, read_object
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.foreign_groups import CoschedulingPodGroup, KaiPodGroup, VolcanoPodGroup
from allot.core.model.meta import APIStruct, ObjectMeta
from allot.core.model.scheduling_v1 import PodGroup, PriorityClass
from allot.core.scheduling import DIALECTS, Dialect, ForeignGroup

# Where a workload has its pod template.
_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
_MEMBERS_MAX = 10_000
_SCHEDULER = "default-scheduler"
_FOREIGN = CoschedulingPodGroup | KaiPodGroup | VolcanoPodGroup
AnyGroup = PodGroup | _FOREIGN


class ManifestError(ValueError):
    """A manifest that cannot be planned with."""


def read_manifest(values: Iterable[Mapping[str, Any]], cluster: Snapshot) -> Manifest:
    """What to copy. cluster: provides templates and groups that the manifest names. ManifestError, DecodeError."""
    pods: list[core_v1.Pod] = []
    parallel: list[int] = []
    workload = ""
    others: list[APIStruct] = []
    passed_over: list[str] = []
    for value in values:
        kind = str(value.get("kind", ""))
        if kind in _TEMPLATES:
            pods.append(_pod_of(value, _TEMPLATES[kind]))
            parallel.append(_parallel(value, kind))
            workload = kind
            continue
        if kind == "DaemonSet":
            raise ManifestError("a DaemonSet has one pod per node: its number of copies is the number of nodes")
        try:
            found = read_object(value)
        except NotInSnapshots:
            passed_over.append(kind)
            continue
        if isinstance(found, core_v1.Pod):
            pods.append(_unbound(found))
            parallel.append(1)
        else:
            others.append(found)
    claims = {_name(found): found for found in others if isinstance(found, api.ResourceClaim)}
    groups = [found for found in others if isinstance(found, PodGroup | _FOREIGN)]
    templates = {_name(found): found for found in cluster.of(api.ResourceClaimTemplate)}
    templates |= {_name(found): found for found in others if isinstance(found, api.ResourceClaimTemplate)}
    # A group in the cluster shows that groups are in use there.
    context: list[APIStruct] = [found for found in others if isinstance(found, api.DeviceClass | PodGroup | _FOREIGN)]
    notes = [f"ignored, because it does not matter here: {', '.join(sorted(set(passed_over)))}"] if passed_over else []
    if not pods:
        pods, notes = _pod_for_claims(claims, notes)
    elif workload:
        context += claims.values()
        claims = {}
    known = _groups_of(cluster)
    named = _group_of(pods, groups, known)
    foreign = named if isinstance(named, _FOREIGN) else None
    group = named if isinstance(named, PodGroup) else as_group(foreign) if foreign is not None else None
    priorities = priorities_of(
        [*cluster.of(PriorityClass), *(each for each in others if isinstance(each, PriorityClass))]
    )
    same = {id(pod): with_priority(pod, priorities) for pod in pods}
    pods = [same[id(pod)] for pod in pods]
    if group is not None and foreign is None:
        group = with_priority(group, priorities)
    if group is not None:
        pods = [pod for pod, count in zip(pods, parallel, strict=False) for _ in range(count)]
        parts = parts_of(foreign) if foreign is not None else []
        if any(part.part for part in parts):
            pods, notes = _gang_in_parts(pods, dialect_for(foreign), parts, notes)
        else:
            pods, notes = _gang(pods, group, notes)
    return Manifest(
        name=_title(pods, group, claims, workload),
        members=tuple(pods),
        group=group,
        foreign=foreign,
        templates=templates,
        own_claims=claims,
        context=tuple(context),
        notes=tuple(notes),
    )


# --- pods ---


def _pod_of(value: Mapping[str, Any], path: tuple[str, ...]) -> core_v1.Pod:
    template: Any = value
    for step in path:
        template = template.get(step) if isinstance(template, dict) else None
    if not isinstance(template, dict):
        raise ManifestError(f"{value.get('kind')}: {'.'.join(path)} is missing")
    given, own = _mapping(value.get("metadata")), _mapping(template.get("metadata"))
    name = given.get("name") or given.get("generateName") or "copy"
    metadata = {**own, "name": name, "namespace": given.get("namespace") or "default"}
    pod = read_object({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec") or {}})
    assert isinstance(pod, core_v1.Pod)
    return _unbound(pod)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _parallel(value: Mapping[str, Any], kind: str) -> int:
    """How many pods of a workload form a gang: a Job's parallelism."""
    count = _mapping(value.get("spec")).get("parallelism") if kind == "Job" else None
    if count is None:
        return 1
    if not isinstance(count, int) or not 1 <= count <= _MEMBERS_MAX:
        raise ManifestError(f"Job: spec.parallelism is {count!r}: expected a number from 1 to {_MEMBERS_MAX}")
    return count


def _unbound(pod: core_v1.Pod) -> core_v1.Pod:
    """A pod as it is before scheduling."""
    spec = replace(pod.spec, node_name="", scheduling_gates=())
    metadata = replace(pod.metadata, name=pod.metadata.name or pod.metadata.generate_name or "copy")
    return replace(pod, metadata=metadata, spec=spec, status=core_v1.PodStatus())


def _pod_for_claims(claims: Mapping[Name, api.ResourceClaim], notes: list[str]) -> tuple[list[core_v1.Pod], list[str]]:
    """A pod for claims that no pod of the manifest names."""
    if not claims:
        raise ManifestError("nothing to plan with: expected a pod, a workload with a pod template, or a claim")
    namespace = next(iter(claims))[0]
    if any(other != namespace for other, _ in claims):
        raise ManifestError("claims without pods are in several namespaces: no pod can use them together")
    entries = tuple(core_v1.PodResourceClaim(name=name, resource_claim_name=name) for _, name in claims)
    metadata = ObjectMeta(name=next(iter(claims))[1], namespace=namespace)
    pod = core_v1.Pod(metadata=metadata, spec=core_v1.PodSpec(scheduler_name=_SCHEDULER, resource_claims=entries))
    return [pod], [*notes, "claims without pods are planned as if a pod without CPU and memory requests used them"]


# --- groups ---


def _groups_of(cluster: Snapshot) -> list[AnyGroup]:
    return [found for found in cluster.objects if isinstance(found, AnyGroup)]


def _named_by(pod: core_v1.Pod, groups: Sequence[AnyGroup]) -> tuple[type[APIStruct], str, str] | None:
    """Type, namespace and name of the group that a pod names. groups: dialects without groups are ignored."""
    link = pod.spec.scheduling_group
    if link is not None and link.pod_group_name:
        return PodGroup, pod.metadata.namespace, link.pod_group_name
    for dialect in DIALECTS:
        name = dialect.name_in(pod)
        if name and any(type(group) is dialect.type for group in groups):
            return dialect.type, pod.metadata.namespace, name
    return None


def _group_of(pods: Sequence[core_v1.Pod], groups: Sequence[AnyGroup], cluster: Sequence[AnyGroup]) -> AnyGroup | None:
    """The group of a manifest's pods. groups: of the manifest; cluster: of the cluster."""
    names = {named for pod in pods if (named := _named_by(pod, (*groups, *cluster))) is not None}
    if not names:
        if len(groups) == 1:
            return groups[0]
        if groups:
            raise ManifestError("several PodGroups, but no pod refers to one")
        return None
    if len(names) > 1:
        raise ManifestError("pods of several PodGroups: expected those of one")
    wanted = next(iter(names))
    for group in (*groups, *cluster):
        if (type(group), *_name(group)) == wanted:
            return group
    raise ManifestError(f"PodGroup {wanted[1]}/{wanted[2]} is neither in the manifest nor in the cluster")


def _gang(
    pods: list[core_v1.Pod], group: PodGroup, notes: list[str], part: str = ""
) -> tuple[list[core_v1.Pod], list[str]]:
    """As many pods as the gang needs, if the manifest has only one."""
    gang = group.spec.scheduling_policy.gang
    needed = gang.min_count if gang is not None else 1
    if not 0 <= needed <= _MEMBERS_MAX:
        raise ManifestError(f"PodGroup {group.metadata.name}: minCount is {needed}: expected at most {_MEMBERS_MAX}")
    if len(pods) >= needed:
        return pods, notes
    if any(pod is not pods[0] for pod in pods):
        whose = f'part "{part}" of the gang' if part else "the gang"
        raise ManifestError(f"{whose} needs {needed} pods, the manifest has {len(pods)} different ones")
    which = f'the {needed} pods of part "{part}"' if part else f"the gang's {needed} pods"
    return [pods[0]] * needed, [*notes, f"{which} are assumed to be like the one in the manifest"]


def _gang_in_parts(
    pods: list[core_v1.Pod], dialect: Dialect, parts: Sequence[ForeignGroup], notes: list[str]
) -> tuple[list[core_v1.Pod], list[str]]:
    """The same for each part with pods in the manifest; the group decides whether these are enough."""
    names = [part.part for part in parts]
    for pod in pods:
        if dialect.part_in(pod) not in names:
            field = dialect.part_label or dialect.part_annotation
            raise ManifestError(
                f"pod {pod.metadata.name}: {field} is {dialect.part_in(pod)!r}: expected a part of PodGroup "
                f"{parts[0].metadata.name}: {', '.join(names)}"
            )
    found: list[core_v1.Pod] = []
    for part in parts:
        mine = [pod for pod in pods if dialect.part_in(pod) == part.part]
        if mine:
            mine, notes = _gang(mine, part, notes, part.part)
            found += mine
    return found, notes


def _title(
    pods: list[core_v1.Pod], group: PodGroup | None, claims: Mapping[Name, api.ResourceClaim], workload: str
) -> str:
    """workload: the kind with the pod template; empty for plain pods."""
    if group is not None:
        return f"gang {group.metadata.namespace}/{group.metadata.name} of {len(pods)} pods"
    first = pods[0].metadata
    if len(pods) == 1:
        kind = "claim" if not pods[0].spec.containers and claims else f"pod of {workload}" if workload else "pod"
        return f"{kind} {first.namespace}/{first.name}"
    return f"{len(pods)} pods, the first {first.namespace}/{first.name}"


def _name(found: APIStruct) -> Name:
    metadata: ObjectMeta = found.metadata  # type: ignore[attr-defined]
    return metadata.namespace, metadata.name
