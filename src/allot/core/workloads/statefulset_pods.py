"""Pods of StatefulSets: their identity, their volumes, and the owners of their volume claims."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.lifecycle.actions import NORMAL, WARNING, Action, Create, Delete, Emit, Patch, PatchType, Retry, Update
from allot.core.lifecycle.disruption import PODS
from allot.core.model.apps_v1 import (
    CONTROLLER_REVISION_HASH,
    POD_INDEX_LABEL,
    POD_NAME_LABEL,
    StatefulSet,
    StatefulSetRetentionPolicy,
)
from allot.core.model.core_v1 import Pod
from allot.core.workloads.ownership import reference_to
from allot.core.workloads.pod_templates import generated_name, pod_from_template
from allot.core.workloads.resources import PERSISTENT_VOLUME_CLAIMS, STATEFUL_SETS
from allot.core.workloads.revisions import Revision
from allot.core.workloads.whole import Object, Whole

_NAME = re.compile(r"(.*)-([0-9]+)", re.DOTALL)
_INT32_MAX = 2**31 - 1
_DELETE = "Delete"


def parent_and_ordinal(name: str) -> tuple[str, int]:
    """The set name and the ordinal in a pod's name; -1 if it has none."""
    found = _NAME.fullmatch(name)
    if found is None:
        return "", -1
    ordinal = int(found[2]) if len(found[2]) <= 10 else _INT32_MAX + 1
    return found[1], ordinal if ordinal <= _INT32_MAX else -1


def ordinal_of(pod: Pod) -> int:
    """The ordinal in a pod's name."""
    return parent_and_ordinal(pod.metadata.name)[1]


def pod_name(set_: str, ordinal: int) -> str:
    """The name of a set's pod."""
    return f"{set_}-{ordinal}"


class Range(msgspec.Struct, frozen=True):
    """The ordinals of a set."""

    start: int
    replicas: int

    @classmethod
    def of(cls, set_: StatefulSet) -> Range:
        """The range of a set."""
        start = set_.spec.ordinals.start if set_.spec.ordinals is not None else 0
        return cls(start, 1 if set_.spec.replicas is None else set_.spec.replicas)

    def __contains__(self, ordinal: int) -> bool:
        return self.start <= ordinal < self.start + self.replicas


class PodWriter:
    """Writes pods and volume claims of one set, with events."""

    def __init__(self, set_: Whole[StatefulSet], claim: Callable[[str], Object | None]) -> None:
        """claim: a volume claim of the set's namespace by name, as the server sent it."""
        self._set = set_
        self._spec = set_.value.spec
        self._claim = claim
        self._range = Range.of(set_.value)
        self._templates: list[Object] = [each.value() for each in self._spec.volume_claim_templates]
        self._policy = self._spec.persistent_volume_claim_retention_policy or StatefulSetRetentionPolicy()

    # --- pods ---

    def create(self, ordinal: int, revision: Revision) -> Create:
        """Create the pod of an ordinal from a template."""
        set_ = self._set.metadata
        name = pod_name(set_.name, ordinal)
        pod = pod_from_template(revision.template, reference_to(STATEFUL_SETS, set_), set_.namespace)
        pod["metadata"]["name"] = name
        pod["metadata"]["generateName"] = generated_name(set_.name)
        pod["metadata"]["labels"] = {
            **pod["metadata"].get("labels", {}),
            **self._identity(name, ordinal),
            CONTROLLER_REVISION_HASH: revision.name,
        }
        spec = {**pod["spec"], "hostname": name}
        if self._spec.service_name:
            spec["subdomain"] = self._spec.service_name
        volumes = self._volumes(spec.get("volumes") or (), ordinal)
        if volumes:
            spec["volumes"] = volumes
        pod["spec"] = spec
        return Create(
            resource=PODS,
            object=pod,
            namespace=set_.namespace,
            on_success=self._done("Create", name),
            on_failure=self._failed("Create", name),
        )

    def delete(self, pod: Pod) -> Delete:
        """Delete exactly this pod."""
        name = pod.metadata.name
        return Delete(
            resource=PODS,
            name=name,
            namespace=pod.metadata.namespace,
            uid=pod.metadata.uid,
            on_success=self._done("Delete", name),
            on_failure=self._failed("Delete", name),
        )

    def repairs(self, pod: Pod) -> list[Action]:
        """Restore a pod's identity: its labels, its volumes, and the owners of its claims."""
        ordinal = ordinal_of(pod)
        metadata: dict[str, Any] = {}
        patch: dict[str, Any] = {}
        if pod.metadata.labels.get(POD_NAME_LABEL) != pod.metadata.name:
            metadata["labels"] = self._identity(pod.metadata.name, ordinal)
        if not self._has_volumes(pod, ordinal):
            # The server will refuse it, and its message is reported.
            patch["spec"] = {"volumes": self._claim_volumes(ordinal)}
        actions: list[Action] = [*self.claim_owner_writes(ordinal, pod)]
        if metadata or patch:
            metadata["uid"] = pod.metadata.uid
            name = pod.metadata.name
            actions.append(
                Patch(
                    resource=PODS,
                    name=name,
                    namespace=pod.metadata.namespace,
                    patch={"metadata": metadata, **patch},
                    type=PatchType.STRATEGIC,
                    on_success=self._done("Update", name),
                    on_failure=self._failed("Update", name),
                )
            )
        return actions

    def _identity(self, name: str, ordinal: int) -> dict[str, str]:
        return {POD_NAME_LABEL: name, POD_INDEX_LABEL: str(ordinal)}

    # --- volumes and their claims ---

    def _claim_name(self, template: Object, ordinal: int) -> str:
        return f"{template['metadata']['name']}-{self._set.metadata.name}-{ordinal}"

    def _claim_volumes(self, ordinal: int) -> list[dict[str, Any]]:
        return [
            {
                "name": template["metadata"]["name"],
                "persistentVolumeClaim": {"claimName": self._claim_name(template, ordinal)},
            }
            for template in self._templates
        ]

    def _volumes(self, volumes: Sequence[Object], ordinal: int) -> list[Object]:
        claimed = {template["metadata"]["name"] for template in self._templates}
        return [*self._claim_volumes(ordinal), *(one for one in volumes if one.get("name") not in claimed)]

    def _has_volumes(self, pod: Pod, ordinal: int) -> bool:
        sources = {volume.name: volume.persistent_volume_claim for volume in pod.spec.volumes}
        for template in self._templates:
            source = sources.get(template["metadata"]["name"])
            if source is None or source.claim_name != self._claim_name(template, ordinal):
                return False
        return True

    def missing_claims(self, ordinal: int) -> tuple[list[Create], list[Action]]:
        """The claims that a pod lacks, and what prevents their creation."""
        creations: list[Create] = []
        problems: list[Action] = []
        name = pod_name(self._set.metadata.name, ordinal)
        for template in self._templates:
            claim_name = self._claim_name(template, ordinal)
            found = self._claim(claim_name)
            if found is None:
                creations.append(self._claim_creation(template, claim_name, name))
            elif found["metadata"].get("deletionTimestamp"):
                why = f"pvc {claim_name} is being deleted"
                told = self._failed("Create", name)
                problems += [msgspec.structs.replace(told, note=told.note + why), Retry(message=why)]
        return creations, problems

    def _claim_creation(self, template: Object, name: str, pod: str) -> Create:
        set_ = self._set.metadata
        given = template["metadata"]
        selector = self._spec.selector
        labels = {**(given.get("labels") or {}), **(selector.match_labels if selector is not None else {})}
        metadata: dict[str, Any] = {"name": name, "namespace": set_.namespace, "labels": labels}
        for part in ("annotations", "finalizers"):
            if given.get(part):
                metadata[part] = given[part]
        object_ = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"]}
        done = f"Create Claim {name} Pod {pod} in StatefulSet {set_.name} success"
        failed = f"Create Claim {name} for Pod {pod} in StatefulSet {set_.name} failed error: "
        return Create(
            resource=PERSISTENT_VOLUME_CLAIMS,
            object=object_,
            namespace=set_.namespace,
            on_success=self._told(NORMAL, "SuccessfulCreate", done),
            on_failure=self._told(WARNING, "FailedCreate", failed),
        )

    def has_stale_claim(self, ordinal: int) -> bool:
        """Whether a claim of a missing pod is still to be deleted with the previous pod of that name."""
        if self._policy.when_scaled != _DELETE:
            return False
        name = pod_name(self._set.metadata.name, ordinal)
        claims = (self._claim(self._claim_name(template, ordinal)) for template in self._templates)
        return any(_names(owner, "v1", "Pod", name) for claim in claims for owner in _owners(claim))

    def claim_owner_writes(self, ordinal: int, pod: Pod) -> list[Action]:
        """Set the owners of a pod's claims that make the garbage collector delete them when the policy says so."""
        actions: list[Action] = []
        for template in self._templates:
            name = self._claim_name(template, ordinal)
            claim = self._claim(name)
            if claim is None:
                continue
            if self._has_other_controller(claim, pod):
                text = (
                    f"PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, "
                    "the retention policy is ignored for this claim"
                )
                actions.append(self._told(WARNING, "ConflictingController", text))
            owners = self._right_owners(claim, pod, ordinal)
            if owners is not None:
                metadata = {**claim["metadata"], "ownerReferences": owners}
                head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
                updated = {**claim, **head, "metadata": metadata}
                actions.append(Update(resource=PERSISTENT_VOLUME_CLAIMS, object=updated))
        return actions

    def _right_owners(self, claim: Object, pod: Pod, ordinal: int) -> list[Object] | None:
        """The owners that a claim should have; None if it has them, or is managed by others."""
        set_, owners = self._set.metadata, _owners(claim)
        ours = [owner for owner in owners if self._is_set(owner) or _names(owner, "v1", "Pod", pod.metadata.name)]
        uids = (set_.uid, pod.metadata.uid)
        if any(owner.get("uid") not in uids for owner in ours):
            # The set or pod is gone: this is up to the garbage collector.
            return None
        others = [owner for owner in owners if owner not in ours]
        if self._has_other_controller(claim, pod):
            return others if ours else None
        policy, is_out = self._policy, ordinal not in self._range
        wanted: list[Object] = []
        if policy.when_scaled == _DELETE and is_out:
            wanted = [_pod_reference(pod)]
        elif policy.when_deleted == _DELETE:
            wanted = [reference_to(STATEFUL_SETS, set_)]
        is_right = [owner.get("uid") for owner in ours] == [owner["uid"] for owner in wanted]
        if is_right and all(owner.get("controller") for owner in ours):
            return None
        return [*others, *wanted]

    def _has_other_controller(self, claim: Object, pod: Pod) -> bool:
        if self._policy.when_scaled != _DELETE and self._policy.when_deleted != _DELETE:
            return False
        uids = (self._set.metadata.uid, pod.metadata.uid)
        for owner in _owners(claim):
            if self._is_set(owner) or _names(owner, "v1", "Pod", pod.metadata.name):
                if owner.get("uid") not in uids:
                    return True
            elif owner.get("controller"):
                return True
        return False

    def _is_set(self, owner: Object) -> bool:
        return _names(owner, STATEFUL_SETS.api_version, STATEFUL_SETS.kind, self._set.metadata.name)

    # --- events ---

    def _done(self, verb: str, pod: str) -> Emit:
        text = f"{verb} Pod {pod} in StatefulSet {self._set.metadata.name} successful"
        return self._told(NORMAL, f"Successful{verb}", text)

    def _failed(self, verb: str, pod: str) -> Emit:
        text = f"{verb} Pod {pod} in StatefulSet {self._set.metadata.name} failed error: "
        return self._told(WARNING, f"Failed{verb}", text)

    def _told(self, type_: str, reason: str, note: str) -> Emit:
        return Emit(regarding=self._set.reference, type=type_, reason=reason, action=reason, note=note)


def _owners(claim: Object | None) -> list[Object]:
    return [] if claim is None else list(claim["metadata"].get("ownerReferences") or ())


def _names(owner: Object, api_version: str, kind: str, name: str) -> bool:
    return (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) == (api_version, kind, name)


def _pod_reference(pod: Pod) -> Mapping[str, Any]:
    return reference_to(PODS, pod.metadata)
