"""A snapshot loaded into the scheduler's machine, which can be queried, changed and restored.

`changed` tries something: it applies the patches, does what controllers would do next (`aftermath`), and at the end
reverts everything, so the cost of each attempt on a large cluster depends only on what it touches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from allot.core.advice.patches import Patch
from allot.core.advice.snapshot import Snapshot, read_object, snapshot_kind
from allot.core.allocation.pools import OPTIONAL_NODE_OPERATIONS
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.encoding import encode_struct
from allot.core.model.meta import APIStruct, ObjectMeta
from allot.core.model.scheduling_v1 import CompositePodGroup, PodGroup
from allot.core.patching import PatchError, json_patch
from allot.core.scheduling import DIALECTS, Machine, ObjectChange, Settings, device_policy, under

T = TypeVar("T", bound=APIStruct)
M = TypeVar("M")
Key = tuple[type[APIStruct], str, str]
Journal = list[tuple[Key, APIStruct | None]]

# Whether to remove pods is the user's decision here, so the decision itself evicts none.
SETTINGS = Settings(preempts=False)


def meta(object_: APIStruct) -> ObjectMeta:
    """The metadata of any object."""
    found: ObjectMeta = object_.metadata  # type: ignore[attr-defined]
    return found


def full_name(object_: APIStruct) -> str:
    """Namespace and name."""
    metadata = meta(object_)
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def key_of(object_: APIStruct) -> Key:
    """The key of an object."""
    metadata = meta(object_)
    return type(object_), metadata.namespace, metadata.name


class CannotChange(Exception):
    """The object does not exist, or the patch result is not valid."""


class Outgrown(Exception):
    """A cluster now uses pod groups that it did not use before: it must be rebuilt from a snapshot."""


_DIALECTS = frozenset(dialect.type for dialect in DIALECTS)
_GROUPED = (core_v1.Pod, PodGroup, CompositePodGroup)


class WhatIfCluster:
    """The cluster of a snapshot."""

    def __init__(self, snapshot: Snapshot, gates: FeatureGates = DEFAULT_GATES, settings: Settings = SETTINGS) -> None:
        """settings: of the scheduler, whatever its name."""
        self.gates = _with_operations(_with_groups(gates, snapshot), snapshot)
        self.settings = under(self.gates, settings)
        self.now = snapshot.taken_at or 0.0
        self.taken_at = snapshot.taken_at
        # What could not be read: see Snapshot.
        self.unread = snapshot.unread
        self.device_api = snapshot.device_api
        self.others = snapshot.others
        self.machine = Machine(
            lambda _scheduler: self.settings, self.gates, device_policy=device_policy((self.settings,))
        )
        for dialect in DIALECTS:
            if snapshot.of(dialect.type):
                self.machine.serve(dialect.api_group)
        self.claims = self.machine.claims
        self.cluster = self.machine.cluster
        self._by_type: dict[type[APIStruct], dict[tuple[str, str], APIStruct]] = {}
        # Findings about the current objects; dropped when one changes.
        self._memo: dict[str, Any] = {}
        # The state of the snapshot, whatever is tried.
        self._pod_namespaces: set[str] | None = None
        # Taint rules before their devices: otherwise each device is processed twice.
        for rule in snapshot.of(api.DeviceTaintRule):
            self._put(rule)
        for object_ in snapshot.objects:
            if object_.__class__ not in (api.DeviceTaintRule, core_v1.Pod):
                self._put(object_)
        # A pod is charged to its queue when it is added: its claims must exist by then.
        for pod in snapshot.of(core_v1.Pod):
            self._put(pod)

    # --- objects ---

    def get(self, type_: type[T], name: str, namespace: str = "") -> T | None:
        """An object, if it exists."""
        return self._by_type.get(type_, {}).get((namespace, name))  # type: ignore[return-value]

    def all(self, type_: type[T]) -> list[T]:
        """Every object of a kind."""
        return list(self._by_type.get(type_, {}).values())  # type: ignore[arg-type]

    def group_of(self, pod: core_v1.Pod) -> PodGroup | None:
        """The group of a pod, in any dialect; None if it has none or its group does not exist."""
        found = self.cluster.membership.of(pod)
        return self.cluster.groups.get(found) if found is not None else None

    def group_named(self, namespace: str, name: str) -> PodGroup | None:
        """A group by its name, one of scheduling.k8s.io before others."""
        groups = self.cluster.groups
        foreign = [f"{dialect.api_group}:{name}" for dialect in DIALECTS]
        # For a group in parts, the first represents all: they are decided together.
        parts = [f"{key}:{part}" for key in foreign for part in sorted(self.cluster.membership.parts(namespace, key))]
        keys = (name, *foreign, *parts)
        return next((groups[namespace, key] for key in keys if (namespace, key) in groups), None)

    def has_pods_in(self, namespace: str) -> bool:
        """Whether the snapshot has pods of a namespace; if not, it may have been taken without them."""
        if self._pod_namespaces is None:
            self._pod_namespaces = {pod.metadata.namespace for pod in self.all(core_v1.Pod)}
        return namespace in self._pod_namespaces

    def memo(self, key: str, work_out: Callable[[], M]) -> M:
        """A cached result, unless an object has changed since."""
        if key not in self._memo:
            self._memo[key] = work_out()
        found: M = self._memo[key]
        return found

    def snapshot(self) -> Snapshot:
        """The current objects."""
        objects = (object_ for objects in self._by_type.values() for object_ in objects.values())
        return Snapshot(tuple(objects), self.taken_at, self.unread, self.device_api, self.others)

    # --- what if ---

    @contextmanager
    def changed(
        self, patches: Sequence[Patch], after: Callable[[WhatIfCluster, Journal], None]
    ) -> Iterator[WhatIfCluster]:
        """The cluster with these changes. after: does what controllers would do, given the changes. CannotChange if
        the changes are impossible."""
        gates = [patch for patch in patches if patch.action == "gate"]
        if gates:
            on = [patch.name for patch in gates if patch.enabled]
            off = [patch.name for patch in gates if not patch.enabled]
            other = WhatIfCluster(self.snapshot(), self.gates.changed(on, off), self.settings)
            with other.changed([patch for patch in patches if patch.action != "gate"], after) as what_if:
                yield what_if
            return
        journal: Journal = []
        try:
            try:
                for patch in patches:
                    self._apply(patch, journal)
            except (PatchError, KeyError, ValueError) as error:
                raise CannotChange(str(error)) from error
            after(self, journal)
            yield self
        finally:
            for key, before in reversed(journal):
                if before is None:
                    self._delete(key)
                else:
                    self._put(before)

    def put(self, object_: APIStruct, journal: Journal) -> None:
        """Create or replace an object; the journal reverts it."""
        key = key_of(object_)
        journal.append((key, self._known(key)))
        self._put(object_)

    def delete(self, object_: APIStruct, journal: Journal) -> None:
        """Delete an object; the journal reverts it."""
        key = key_of(object_)
        known = self._known(key)
        if known is not None:
            journal.append((key, known))
            self._delete(key)

    # --- a cluster that continues ---

    def follow(self, before: APIStruct | None, after: APIStruct | None) -> None:
        """The cluster itself has changed: this is not reverted. Outgrown if it needs another machine."""
        if after is None:
            assert before is not None, "a change has an object"
            if self._known(key_of(before)) is not None:
                self._delete(key_of(before))
            return
        if self._outgrown_by(after):
            raise Outgrown(full_name(after))
        self._put(after)

    def pass_to(self, now: float) -> None:
        """Advance the time (seconds since 1970)."""
        self.now = self.taken_at = now

    def _outgrown_by(self, object_: APIStruct) -> bool:
        """Whether an object proves that a feature is now in use."""
        if object_.__class__ in _DIALECTS:
            return not self._by_type.get(object_.__class__)
        if object_.__class__ not in _GROUPED:
            return False
        return _with_groups(self.gates, Snapshot((object_,))) != self.gates

    def _apply(self, patch: Patch, journal: Journal) -> None:
        if patch.action == "create":
            assert patch.object is not None
            self.put(read_object(patch.object), journal)
            return
        found = self.named(patch)
        if patch.action == "delete":
            self.delete(found, journal)
            return
        changed = json_patch(as_json(found), list(patch.patch))
        self.put(read_object(changed), journal)

    def named(self, patch: Patch) -> APIStruct:
        """The object of a patch; KeyError if it does not exist."""
        for type_, objects in self._by_type.items():
            found = objects.get((patch.namespace, patch.name))
            if found is not None and snapshot_kind(type_).name == patch.kind:
                return found
        raise KeyError(patch.kind)

    # --- keeping the machine informed ---

    def _put(self, object_: APIStruct) -> None:
        # Runs for each object of a cluster, so it must be fast.
        if self._memo:
            self._memo.clear()
        objects = self._by_type.get(object_.__class__)
        if objects is None:
            objects = self._by_type[object_.__class__] = {}
        metadata: ObjectMeta = object_.metadata  # type: ignore[attr-defined]
        key = (metadata.namespace, metadata.name)
        before = objects.get(key)
        objects[key] = object_
        self.machine.apply(ObjectChange(before, object_), 0.0)

    def _known(self, key: Key) -> APIStruct | None:
        return self._by_type.get(key[0], {}).get(key[1:])

    def _delete(self, key: Key) -> None:
        self._memo.clear()
        object_ = self._by_type[key[0]].pop(key[1:])
        self.machine.apply(ObjectChange(object_, None), 0.0)


def as_json(object_: APIStruct) -> dict[str, Any]:
    """An object with its apiVersion and kind."""
    kind = snapshot_kind(type(object_))
    return {"apiVersion": kind.api_version(kind.versions[0]), "kind": kind.name, **encode_struct(object_)}


def _with_groups(gates: FeatureGates, snapshot: Snapshot) -> FeatureGates:
    """A cluster that has pod groups, or pods that name one, has the feature enabled, and the features of their stored fields."""
    groups: list[PodGroup | CompositePodGroup] = [*snapshot.of(PodGroup), *snapshot.of(CompositePodGroup)]
    if not groups and all(pod.spec.scheduling_group is None for pod in snapshot.of(core_v1.Pod)):
        return gates
    proved = ["GenericWorkload"]
    for group in groups:
        spec = group.spec
        if spec.scheduling_constraints is not None:
            proved.append("TopologyAwareWorkloadScheduling")
        if isinstance(group, CompositePodGroup) or spec.parent_composite_pod_group_name is not None:
            proved.append("CompositePodGroup")
        if spec.preemption_policy is not None:
            proved.append("PodGroupPreemptionPolicy")
        if isinstance(group, PodGroup) and group.spec.resource_claims:
            proved.append("DRAWorkloadResourceClaims")
    return gates.changed(proved)


def _with_operations(gates: FeatureGates, snapshot: Snapshot) -> FeatureGates:
    """Kubelets without node operations, and slices that say so, exist only if the feature is enabled."""
    if OPTIONAL_NODE_OPERATIONS in gates or all(
        not each.spec.skip_node_operations for each in snapshot.of(api.ResourceSlice)
    ):
        return gates
    declared = any(OPTIONAL_NODE_OPERATIONS in node.status.declared_features for node in snapshot.of(core_v1.Node))
    return gates.changed([OPTIONAL_NODE_OPERATIONS]) if declared else gates
