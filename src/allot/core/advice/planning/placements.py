"""Whether the pods of manifests would be placed if they were applied to a cluster now, and where.

The manifests' objects are added to the cluster, and their pods are decided one by one, gangs as a whole, each after
its predecessors. Claims are created from templates as the resource claim controller does, priorities and quotas are looked up as
in admission. No pod is preempted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from allot.core.advice.convert.objects import at, mapping, text
from allot.core.advice.planning.changes import with_objects
from allot.core.advice.planning.copies import Copy, ForeignObject, Manifest, NoTemplate
from allot.core.advice.planning.filling import create_objects, place
from allot.core.advice.planning.priorities import priorities_of
from allot.core.advice.planning.quotas import charge_quotas
from allot.core.advice.planning.reasons import cause_of
from allot.core.advice.pod_templates import pod_spec_paths, pods_made
from allot.core.advice.snapshot import NotInSnapshots, Snapshot, read_object
from allot.core.advice.what_if import SETTINGS, WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.meta import APIStruct
from allot.core.model.scheduling_v1 import PodGroup, PriorityClass
from allot.core.scheduling import Settings, dialect_of

PODS_MAX = 1000
_DEFAULT_NAMESPACE = "default"


class PodPlacement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod and its node, or why it gets none. owner: the manifest's object that creates it, such as `Deployment web`."""

    owner: str
    pod: str
    node: str = ""
    reason: str = ""


class PlacementAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All pods, and what was left out."""

    pods: tuple[PodPlacement, ...]
    notes: tuple[str, ...] = ()

    @property
    def are_all_placed(self) -> bool:
        """Whether every pod gets a node."""
        return all(pod.node for pod in self.pods)


class _Wanted(msgspec.Struct, frozen=True):
    """A pod as it would be created, and its owner."""

    owner: str
    pod: core_v1.Pod


def placements_of(
    values: Sequence[Mapping[str, Any]], snapshot: Snapshot, settings: Settings = SETTINGS
) -> PlacementAnswer:
    """Where the pods of manifests would be placed. ChangeError, DecodeError, ConversionError."""
    notes: list[str] = []
    wanted = _wanted(values, notes)
    snapshot = with_objects(snapshot, _others(values))
    return PlacementAnswer(pods=tuple(_Trial(snapshot, settings).placed(wanted)), notes=tuple(notes))


# --- the pods of the manifests ---


def _others(values: Iterable[Mapping[str, Any]]) -> Iterator[APIStruct]:
    """Objects besides pods that a decision can depend on."""
    for value in values:
        try:
            found = read_object(value)
        except NotInSnapshots:
            continue
        if not isinstance(found, core_v1.Pod):
            yield found


def _wanted(values: Iterable[Mapping[str, Any]], notes: list[str]) -> list[_Wanted]:
    found: list[_Wanted] = []
    for value in values:
        kind, name = text(value.get("kind")), text(at(value, ("metadata", "name")))
        name = name or text(at(value, ("metadata", "generateName"))).rstrip("-") or kind.lower()
        if kind == "DaemonSet":
            notes.append(f"DaemonSet {name}: left out, because it has a pod on each eligible node")
            continue
        paths = list(pod_spec_paths(value))
        for number, path in enumerate(paths):
            count = pods_made(value, path)
            base = name if len(paths) == 1 else f"{name}-{number}"
            names = [base] if count == 1 and path == ("spec",) else [f"{base}-{index}" for index in range(count)]
            for each in names[: PODS_MAX - len(found)]:
                found.append(_Wanted(f"{kind} {name}", _pod(value, path, each)))
            if len(found) >= PODS_MAX:
                notes.append(f"only the first {PODS_MAX} pods were tried")
                return found
    return found


def _pod(value: Mapping[str, Any], path: tuple[str | int, ...], name: str) -> core_v1.Pod:
    own = mapping(at(value, (*path[:-1], "metadata")))
    namespace = text(at(value, ("metadata", "namespace"))) or _DEFAULT_NAMESPACE
    metadata = {"labels": own.get("labels"), "annotations": own.get("annotations")}
    head = {"name": name, "namespace": namespace, **{key: part for key, part in metadata.items() if part}}
    pod = read_object({"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": at(value, path)})
    assert isinstance(pod, core_v1.Pod)
    return replace(pod, spec=replace(pod.spec, node_name=""), status=core_v1.PodStatus())


# --- their placement ---


class _Trial:
    """A cluster that fills up."""

    def __init__(self, snapshot: Snapshot, settings: Settings) -> None:
        self._what_if = WhatIfCluster(snapshot, settings=settings)
        self._snapshot = snapshot
        self._templates = {
            (found.metadata.namespace, found.metadata.name): found for found in snapshot.of(api.ResourceClaimTemplate)
        }
        self._priorities = priorities_of(snapshot.of(PriorityClass))
        # Causes for pods that did not fit even alone.
        self._causes: dict[str, str] = {}

    def placed(self, wanted: Sequence[_Wanted]) -> Iterator[PodPlacement]:
        """Every pod, with gangs at the position of their first pod."""
        gangs: dict[str, list[_Wanted]] = {}
        for each in wanted:
            gangs.setdefault(self._group_key(each.pod) or f"pod {full_name(each.pod)}", []).append(each)
        for members in gangs.values():
            yield from self._placed_unit(members, self._group_of(members[0].pod))

    def _group_key(self, pod: core_v1.Pod) -> str:
        """The key of a pod's group; empty if it has none, or the group does not exist."""
        cluster = self._what_if.cluster
        found = cluster.membership.of(pod)
        if found is None or not (found in cluster.groups or cluster.membership.parts(*found)):
            return ""
        key = f"{found[0]}/{found[1]}"
        return cluster.forest.root(key) if dialect_of(key) is not None else key

    def _group_of(self, pod: core_v1.Pod) -> PodGroup | ForeignObject | None:
        """The API object of a pod's group."""
        namespace, _, key = self._group_key(pod).partition("/")
        if not key:
            return None
        dialect = dialect_of(key)
        if dialect is not None:
            return self._what_if.get(dialect.type, key.split(":")[1], namespace)
        named = pod.spec.scheduling_group
        return self._what_if.get(PodGroup, named.pod_group_name or "", namespace) if named is not None else None

    def _placed_unit(
        self, members: Sequence[_Wanted], group: PodGroup | ForeignObject | None
    ) -> Iterator[PodPlacement]:
        nodes, reason = self._decided(members, group)
        for each in members:
            node = nodes.get(each.pod.metadata.name, "")
            yield PodPlacement(
                owner=each.owner,
                pod=full_name(each.pod),
                node=node,
                reason="" if node else reason or "no room is left",
            )

    def _decided(
        self, members: Sequence[_Wanted], group: PodGroup | ForeignObject | None
    ) -> tuple[dict[str, str], str]:
        unknown = [
            each.pod.spec.priority_class_name
            for each in members
            if each.pod.spec.priority_class_name not in self._priorities
        ]
        if unknown:
            return {}, f"no PriorityClass with name {unknown[0]} was found"
        is_own = isinstance(group, PodGroup)
        manifest = Manifest(
            name=members[0].owner,
            members=tuple(self._with_priority(each.pod) for each in members),
            group=self._group_with_priority(group) if isinstance(group, PodGroup) else None,
            foreign=None if is_own else group,
            templates=self._templates,
        )
        try:
            copy = manifest.original()
        except NoTemplate as error:
            return {}, str(error)
        refused = charge_quotas(self._what_if, copy, [])
        if refused:
            return {}, refused
        return self._with_nodes(manifest, copy, members[0].owner)

    def _with_nodes(self, manifest: Manifest, copy: Copy, owner: str) -> tuple[dict[str, str], str]:
        create_objects(self._what_if, copy)
        placements: list[Any] = []
        blocked = place(self._what_if, copy, placements)
        if blocked is None:
            return {placement.pod.metadata.name: placement.node for placement in placements}, ""
        if copy.group is not None:
            return {}, blocked.explanation or blocked.message
        if owner not in self._causes:
            self._causes[owner] = cause_of(self._snapshot, copy, manifest.templates.values())
        return {}, self._causes[owner] or blocked.explanation or blocked.message

    def _with_priority(self, pod: core_v1.Pod) -> core_v1.Pod:
        return replace(pod, spec=replace(pod.spec, priority=self._priorities[pod.spec.priority_class_name]))

    def _group_with_priority(self, group: PodGroup) -> PodGroup:
        priority = self._priorities.get(group.spec.priority_class_name, 0)
        return replace(group, spec=replace(group.spec, priority=priority))
