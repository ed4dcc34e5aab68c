"""Volume claims of pods' ephemeral volumes: created with the pod, owned by it, deleted with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from allot.core.lifecycle.actions import WARNING, Action, Answers, Create, Emit, LookUp, Resource, Retry
from allot.core.model.core_v1 import Pod
from allot.core.scheduling import claim_name
from allot.core.workloads.storage_protection import CLAIMS, is_made_for

JSON = Mapping[str, Any]

# Pods as the server has them: caches do not keep claim templates.
WHOLE_PODS = Resource(group="", version="v1", plural="pods", kind="Pod", namespaced=True)


def has_ephemeral_volumes(pod: Pod) -> bool:
    """Whether a pod has ephemeral volumes that need claims."""
    return any(volume.ephemeral is not None for volume in pod.spec.volumes)


def reconcile_pod(pod: Pod, claim_of: Callable[[str], JSON | None], answers: Answers) -> tuple[Action, ...]:
    """Create the claims that a pod lacks. claim_of: the claim of that name in the pod's namespace."""
    if pod.metadata.deletion_timestamp is not None:
        return ()
    names = {volume.name: str(claim_name(pod, volume)) for volume in pod.spec.volumes if volume.ephemeral is not None}
    present = {name: claim_of(name) for name in names.values()}
    foreign = [name for name, claim in present.items() if claim is not None and not is_made_for(claim, pod)]
    missing = {volume: name for volume, name in names.items() if present[name] is None}
    actions: list[Action] = []
    if missing:
        question = LookUp(resource=WHOLE_PODS, name=pod.metadata.name, namespace=pod.metadata.namespace)
        if question not in answers:
            return (question,)
        whole = answers[question]
        if whole is None or whole["metadata"]["uid"] != pod.metadata.uid:
            return ()
        templates = {volume["name"]: volume for volume in whole["spec"].get("volumes") or ()}
        actions += [_create(pod, templates[volume]["ephemeral"], name) for volume, name in missing.items()]
    if foreign:
        namespace = pod.metadata.namespace
        text = (
            f"PVC {namespace}/{foreign[0]} was not created for pod {namespace}/{pod.metadata.name} (pod is not owner)"
        )
        actions.append(Retry(message=text))
    return tuple(actions)


def _create(pod: Pod, source: JSON, name: str) -> Create:
    template = source.get("volumeClaimTemplate") or {}
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata: dict[str, Any] = {"name": name, "namespace": pod.metadata.namespace, "ownerReferences": [owner]}
    given = template.get("metadata") or {}
    metadata |= {member: given[member] for member in ("annotations", "labels") if given.get(member)}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": template.get("spec") or {},
    }
    told = Emit(
        regarding=pod, type=WARNING, reason="FailedCreate", action="Create", note=f"Error creating: create PVC {name}: "
    )
    return Create(resource=CLAIMS, object=claim, namespace=pod.metadata.namespace, on_failure=told)
