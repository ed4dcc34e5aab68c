"""Deployments: a ReplicaSet for each template; the newest grows while the others shrink.

One pass decides everything on drafts of the ReplicaSets, then writes what differs: the ReplicaSets first, the Deployment's status
last. Each write is guarded by the resourceVersion that was read, so a pass over a stale cache writes nothing wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from allot.core.lifecycle.actions import NORMAL, WARNING, Action, Answers, Create, Delete, Emit, RequeueAfter, Update
from allot.core.lifecycle.disruption import is_terminal
from allot.core.model.apps_v1 import POD_TEMPLATE_HASH, Deployment, DeploymentStatus, ReplicaSet, ReplicaSetStatus
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import LabelSelector, ObjectMeta
from allot.core.workloads import deployment_status as conditions
from allot.core.workloads.ownership import claim, is_controlled_by, reference_to, selector_of, take_over
from allot.core.workloads.pod_templates import hash_of, template_key, template_value
from allot.core.workloads.replicaset import replicas_of
from allot.core.workloads.resources import DEPLOYMENTS, REPLICA_SETS
from allot.core.workloads.rollout import (
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    RECREATE,
    REVISION,
    REVISION_HISTORY,
    Draft,
    is_scaling,
    new_size,
    number_in,
    scale,
    scale_down_old,
    wanted_replicas,
)
from allot.core.workloads.whole import Whole

ROLLBACK_TO = "deprecated.deployment.rollback.to"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Annotations that are not copied between a Deployment and its ReplicaSets.
_NOT_COPIED = frozenset((_LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO))
_HISTORY_LENGTH_MAX = 2000
_NAME_LENGTH_MAX = 253
_INT32_MAX = 2**31 - 1


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What the decisions about a Deployment depend on, besides itself."""

    # Those that it controls, and the orphans in its namespace.
    replica_sets: Sequence[Whole[ReplicaSet]]
    # The ReplicaSet of a name in its namespace, with any owner.
    named: Callable[[str], Whole[ReplicaSet] | None]
    # The pods that a ReplicaSet controls, by its uid.
    pods_of: Callable[[str], Iterable[Pod]]
    # Why the last attempt to create a ReplicaSet failed.
    failure: str = ""


def reconcile(deployment: Whole[Deployment], view: View, answers: Answers, now_s: float) -> Sequence[Action]:
    """What to do for a Deployment."""
    value = deployment.value
    if value.spec.selector == LabelSelector():
        return _selecting_all(deployment)
    selector = selector_of(value.spec.selector)
    if selector is None or value.spec.template is None:
        return ()
    claimed = claim(value.metadata, lambda each: selector.matches(each.metadata.labels), view.replica_sets)
    taking, is_all = take_over(DEPLOYMENTS, value.metadata, REPLICA_SETS, claimed, answers)
    if is_all:
        return taking
    return (*taking, *_Look(deployment, claimed.members, view, now_s).decide())


def _selecting_all(deployment: Whole[Deployment]) -> Sequence[Action]:
    note = "This deployment is selecting all pods. A non-empty selector is required."
    told = _emit(deployment, WARNING, "SelectingAll", note)
    status, generation = deployment.value.status, deployment.metadata.generation
    if status.observed_generation >= generation:
        return (told,)
    return (deployment.update_status(msgspec.structs.replace(status, observed_generation=generation)), told)


def _emit(deployment: Whole[Deployment], type_: str, reason: str, note: str) -> Emit:
    return Emit(regarding=deployment.reference, type=type_, reason=reason, action=reason, note=note)


class _Look:
    """One pass over a Deployment."""

    def __init__(
        self, deployment: Whole[Deployment], members: Iterable[Whole[ReplicaSet]], view: View, now_s: float
    ) -> None:
        self._deployment = deployment
        self._value = deployment.value
        self._spec = deployment.value.spec
        self._view = view
        self._now_s = now_s
        assert self._spec.template is not None
        self._key = template_key(self._spec.template, POD_TEMPLATE_HASH)
        drafts = sorted((Draft.of(each, _key_of(each)) for each in members), key=lambda each: each.age)
        # The oldest with the current template is the new one, so that the choice between two is stable.
        self._new = next((each for each in drafts if each.template_key == self._key), None)
        self._old = [each for each in drafts if each is not self._new]
        self._status = self._value.status
        self._annotations = dict(deployment.metadata.annotations)
        self._deleted: list[Draft] = []

    def decide(self) -> Sequence[Action]:
        """What to do."""
        if self._value.metadata.deletion_timestamp is not None:
            self._note_revision()
            return self._written(self._counted())
        self._status = conditions.with_pause(self._value, self._now_s)
        self._note_revision()
        if self._spec.paused:
            self._scale()
            if number_in(self._annotations, ROLLBACK_TO) is None:
                self._clean_up()
            return self._written(self._counted())
        revision = number_in(self._annotations, ROLLBACK_TO)
        if revision is not None:
            return self._roll_back(revision)
        if is_scaling(self._spec, self._sets):
            self._scale()
            return self._written(self._counted())
        return self._recreate() if self._spec.strategy.type == RECREATE else self._roll()

    # --- ways to get there ---

    def _roll(self) -> Sequence[Action]:
        if self._new is None:
            stopped = self._make_new()
            if stopped is not None:
                return stopped
        new = self._new
        assert new is not None
        wanted = wanted_replicas(self._spec)
        is_scaled = False
        if new.replicas != wanted:
            total = sum(each.replicas for each in self._sets)
            size = wanted if new.replicas > wanted else new_size(self._spec, new.replicas, total)
            is_scaled = new.set_size(size, self._spec)
        if not is_scaled and not scale_down_old(self._spec, new, self._old):
            self._clean_up_when_complete()
        return self._written(self._rolled_out())

    def _recreate(self) -> Sequence[Action]:
        is_scaled = False
        for each in self._old:
            if each.replicas > 0:
                is_scaled |= each.set_size(0, self._spec)
        if is_scaled or self._old_pods_run():
            return self._written(self._rolled_out())
        if self._new is None:
            stopped = self._make_new()
            if stopped is not None:
                return stopped
        assert self._new is not None
        self._new.set_size(wanted_replicas(self._spec), self._spec)
        self._clean_up_when_complete()
        return self._written(self._rolled_out())

    def _old_pods_run(self) -> bool:
        if any(each.status.replicas > 0 for each in self._old):
            return True
        return any(not is_terminal(pod) for each in self._old for pod in self._view.pods_of(each.metadata.uid))

    def _scale(self) -> None:
        scale(self._spec, self._new, self._old, self._status.replicas)

    def _clean_up_when_complete(self) -> None:
        if conditions.is_complete(self._value, self._value.status):
            self._clean_up()

    def _clean_up(self) -> None:
        """Delete old ReplicaSets beyond the limit, unless they have pods."""
        limit = self._spec.revision_history_limit
        if limit is None or limit == _INT32_MAX:
            return
        alive = [each for each in self._old if each.metadata.deletion_timestamp is None]
        alive.sort(key=lambda each: (each.revision, each.age))
        for each in alive[: max(0, len(alive) - limit)]:
            is_observed = each.metadata.generation <= each.status.observed_generation
            if each.status.replicas == 0 and each.replicas == 0 and is_observed:
                self._deleted.append(each)

    # --- the new ReplicaSet ---

    def _note_revision(self) -> None:
        """Keep the revision, annotations and settings of the new ReplicaSet, and the Deployment's revision."""
        new = self._new
        if new is None:
            return
        _copy_annotations(self._annotations, new.annotations)
        _raise_revision(new.annotations, max((each.revision for each in self._old), default=0) + 1)
        new.min_ready_seconds = self._spec.min_ready_seconds
        self._annotations[REVISION] = new.annotations.get(REVISION, "")
        if (
            conditions.has_deadline(self._spec)
            and conditions.condition_of(self._status, conditions.PROGRESSING) is None
        ):
            self._tell_progress("True", "FoundNewReplicaSet", f'Found new replica set "{new.name}"')

    def _make_new(self) -> Sequence[Action] | None:
        """Create a ReplicaSet of the current template; returns what to do instead if that is impossible."""
        hash_ = hash_of(self._key, self._status.collision_count)
        owner = self._value.metadata
        name = f"{owner.name[: _NAME_LENGTH_MAX - 1 - len(hash_)]}-{hash_}"
        taken = self._view.named(name)
        if taken is not None:
            if is_controlled_by(taken, owner.uid) and _key_of(taken) == self._key:
                self._new = Draft.of(taken, self._key)
                self._note_revision()
                return None
            # Another template has the same hash: the next pass tries another.
            count = (self._status.collision_count or 0) + 1
            return (self._deployment.update_status(msgspec.structs.replace(self._status, collision_count=count)),)
        new = Draft(ObjectMeta(name=name, namespace=owner.namespace), 0, ReplicaSetStatus(), template_key=self._key)
        new.min_ready_seconds = self._spec.min_ready_seconds
        new.replicas = new_size(self._spec, 0, sum(each.replicas for each in self._old))
        _copy_annotations(self._annotations, new.annotations)
        new.annotations[REVISION] = str(max((each.revision for each in self._old), default=0) + 1)
        new.note_sizes(self._spec)
        self._new = new
        if self._view.failure:
            message = f'Failed to create new replica set "{name}": {self._view.failure}'
            if conditions.has_deadline(self._spec):
                self._tell_progress("False", "ReplicaSetCreateError", message)
            return (*self._status_update(self._status), self._creation(new, hash_))
        self._annotations[REVISION] = new.annotations[REVISION]
        if conditions.has_deadline(self._spec):
            self._tell_progress("True", "NewReplicaSetCreated", f'Created new replica set "{name}"')
        return None

    def _creation(self, new: Draft, hash_: str) -> Create:
        assert self._spec.template is not None
        template = template_value(self._spec.template)
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), POD_TEMPLATE_HASH: hash_}
        selector = dict(self._deployment.source["spec"]["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), POD_TEMPLATE_HASH: hash_}
        replica_set = {
            "apiVersion": REPLICA_SETS.api_version,
            "kind": REPLICA_SETS.kind,
            "metadata": {
                "name": new.name,
                "namespace": new.metadata.namespace,
                "labels": labels,
                "annotations": dict(new.annotations),
                "ownerReferences": [reference_to(DEPLOYMENTS, self._value.metadata)],
            },
            "spec": _sized(
                {"selector": selector, "template": {**template, "metadata": {**metadata, "labels": labels}}}, new
            ),
        }
        failed = f'Failed to create new replica set "{new.name}": '
        return Create(
            resource=REPLICA_SETS,
            object=replica_set,
            namespace=new.metadata.namespace,
            on_success=self._scaled(new.name, 0, new.replicas) if new.replicas else None,
            on_failure=_emit(self._deployment, WARNING, "ReplicaSetCreateError", failed),
        )

    # --- going back ---

    def _roll_back(self, revision: int) -> Sequence[Action]:
        """Return to an earlier template if the annotation of a removed API asks for it. kubectl writes the template itself."""
        if self._new is None:
            stopped = self._make_new()
            if stopped is not None:
                return stopped
        revisions = sorted((each.revision for each in self._sets), reverse=True)
        if revision == 0:
            revision = revisions[1] if len(revisions) > 1 else 0
            if revision == 0:
                return self._without_rollback(
                    WARNING, "DeploymentRollbackRevisionNotFound", "Unable to find last revision."
                )
        found = next((each for each in self._sets if each.revision == revision), None)
        if found is None:
            note = "Unable to find the revision to rollback to."
            return self._without_rollback(WARNING, "DeploymentRollbackRevisionNotFound", note)
        name = self._value.metadata.name
        if found.template_key == self._key or found.whole is None:
            note = f'The rollback revision contains the same template as current deployment "{name}"'
            return self._without_rollback(WARNING, "DeploymentRollbackTemplateUnchanged", note)
        template = dict(found.whole.source["spec"]["template"])
        metadata = dict(template.get("metadata") or {})
        metadata["labels"] = {key: one for key, one in metadata["labels"].items() if key != POD_TEMPLATE_HASH}
        kept = {key: one for key, one in self._annotations.items() if key in _NOT_COPIED}
        _copy_annotations(found.annotations, kept)
        self._annotations = kept
        note = f'Rolled back deployment "{name}" to revision {revision}'
        return self._without_rollback(NORMAL, "DeploymentRollback", note, {**template, "metadata": metadata})

    def _without_rollback(
        self, type_: str, reason: str, note: str, template: Mapping[str, object] | None = None
    ) -> Sequence[Action]:
        annotations = {key: one for key, one in self._annotations.items() if key != ROLLBACK_TO}
        spec = dict(self._deployment.source["spec"])
        if template is not None:
            spec["template"] = template
        object_ = self._deployment.with_parts(metadata=self._deployment.with_annotations(annotations), spec=spec)
        told = _emit(self._deployment, type_, reason, note)
        return (*self._set_writes(), Update(resource=DEPLOYMENTS, object=object_, on_success=told))

    # --- writing ---

    @property
    def _sets(self) -> list[Draft]:
        return self._old if self._new is None else [*self._old, self._new]

    def _counted(self) -> DeploymentStatus:
        return conditions.counted(self._value, self._status, self._sets, self._new, self._now_s)

    def _rolled_out(self) -> DeploymentStatus:
        return conditions.rolled_out(self._value, self._status, self._sets, self._new, self._now_s)

    def _tell_progress(self, status: str, reason: str, message: str) -> None:
        told = conditions.condition(conditions.PROGRESSING, status, reason, message, self._now_s)
        self._status = conditions.with_condition(self._status, told)

    def _written(self, status: DeploymentStatus) -> Sequence[Action]:
        deletions = [
            Delete(resource=REPLICA_SETS, name=each.name, namespace=each.metadata.namespace, uid=each.metadata.uid)
            for each in self._deleted
        ]
        return (*self._set_writes(), *deletions, *self._status_update(status), *self._next_look(status))

    def _set_writes(self) -> Sequence[Action]:
        """The ReplicaSets that have changed."""
        writes: list[Action] = []
        for each in self._sets:
            if each.whole is None:
                writes.append(self._creation(each, hash_of(self._key, self._status.collision_count)))
                continue
            before, source = each.whole.value, each.whole.source
            size = replicas_of(before)
            if (size, before.metadata.annotations, before.spec.min_ready_seconds) == (
                each.replicas,
                each.annotations,
                each.min_ready_seconds,
            ):
                continue
            object_ = each.whole.with_parts(
                metadata=each.whole.with_annotations(each.annotations), spec=_sized(source["spec"], each)
            )
            told = self._scaled(each.name, size, each.replicas) if size != each.replicas else None
            writes.append(Update(resource=REPLICA_SETS, object=object_, on_success=told))
        return writes

    def _scaled(self, name: str, before: int, after: int) -> Emit:
        way = "up" if after > before else "down"
        note = f"Scaled {way} replica set {name} from {before} to {after}"
        return _emit(self._deployment, NORMAL, "ScalingReplicaSet", note)

    def _status_update(self, status: DeploymentStatus) -> Sequence[Action]:
        """The status, and the revision annotation, which is written with it."""
        if status == self._value.status and self._annotations == self._deployment.metadata.annotations:
            return ()
        metadata = self._deployment.with_annotations(self._annotations)
        return (self._deployment.update_status(status, metadata=metadata),)

    def _next_look(self, status: DeploymentStatus) -> Sequence[Action]:
        """When progress will be overdue."""
        told = conditions.condition_of(status, conditions.PROGRESSING)
        if not conditions.has_deadline(self._spec) or told is None or self._spec.paused:
            return ()
        if conditions.is_complete(self._value, status) or told.reason == conditions.DEADLINE_EXCEEDED:
            return ()
        # One second more, because times are in whole seconds.
        return (RequeueAfter(seconds=max(0.0, conditions.deadline_s(self._spec, told) - self._now_s) + 1.0),)


def _sized(spec: Mapping[str, object], draft: Draft) -> dict[str, object]:
    """The spec of a ReplicaSet with what was decided."""
    sized = {**spec, "replicas": draft.replicas, "minReadySeconds": draft.min_ready_seconds}
    if not draft.min_ready_seconds:
        del sized["minReadySeconds"]
    return sized


def _key_of(replica_set: Whole[ReplicaSet]) -> bytes:
    template = replica_set.value.spec.template
    return b"" if template is None else template_key(template, POD_TEMPLATE_HASH)


def _copy_annotations(source: Mapping[str, str], target: dict[str, str]) -> None:
    target.update({key: value for key, value in source.items() if key not in _NOT_COPIED})


def _raise_revision(annotations: dict[str, str], revision: int) -> None:
    """Give a ReplicaSet a higher revision and remember its previous one. One that is not a number is kept."""
    text = annotations.get(REVISION, "")
    number = number_in(annotations, REVISION) if text else 0
    if number is None or number >= revision:
        return
    annotations[REVISION] = str(revision)
    if not text:
        return
    history = annotations.get(REVISION_HISTORY, "")
    earlier = [*(history.split(",") if history else []), text]
    while len(earlier) > 1 and len(",".join(earlier)) > _HISTORY_LENGTH_MAX:
        earlier.pop(0)
    annotations[REVISION_HISTORY] = ",".join(earlier)
