"""Pods from a template, and comparison of templates."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from allot.core.lifecycle.actions import NORMAL, WARNING, Create, Delete, Emit
from allot.core.lifecycle.disruption import PODS
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import ObjectMeta, RawJSON
from allot.core.quantity import Quantity
from allot.core.workloads.whole import Object

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
# Pod fields that are maps: empty is the same as absent. Other empty objects have a meaning (`emptyDir: {}`).
_MAPS = frozenset(("labels", "annotations", "nodeSelector", "overhead", "limits", "requests", "matchLabels"))
_QUANTITIES = frozenset(("overhead", "limits", "requests"))
_NAME_LENGTH_MAX = 253


@lru_cache(maxsize=512)
def template_value(template: RawJSON) -> Object:
    """A template as a JSON value. It is shared: never change it."""
    value: Object = template.value()
    return value


def pod_from_template(template: Object, reference: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """A pod from a template, controlled by an owner; it has no name yet."""
    given = template.get("metadata") or {}
    metadata: dict[str, Any] = {"namespace": namespace, "ownerReferences": [dict(reference)]}
    for part in ("labels", "annotations", "finalizers"):
        if given.get(part):
            metadata[part] = given[part]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec") or {}}


def generated_name(owner: str) -> str:
    """The prefix of generated names of an owner's pods; it ends with a dash if there is room."""
    prefix = f"{owner}-"
    return prefix if len(prefix) <= _NAME_LENGTH_MAX else owner


def create_pod(pod: Object, owner: Object) -> Create:
    """Create a pod with an event about its owner. The server generates the name."""
    return Create(
        resource=PODS,
        object=pod,
        namespace=pod["metadata"]["namespace"],
        on_success=_told(owner, NORMAL, "SuccessfulCreate", "Created pod: "),
        on_failure=_told(owner, WARNING, "FailedCreate", "Error creating: "),
    )


def delete_pod(pod: Pod, owner: Object) -> Delete:
    """Delete exactly this pod, with an event about its owner."""
    return Delete(
        resource=PODS,
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        uid=pod.metadata.uid,
        on_success=_told(owner, NORMAL, "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}"),
        on_failure=_told(owner, WARNING, "FailedDelete", "Error deleting: "),
    )


def _told(owner: Object, type_: str, reason: str, note: str) -> Emit:
    return Emit(regarding=owner, type=type_, reason=reason, action=reason, note=note)


# --- which are the same ---


def canonical(value: Any) -> Any:
    """A JSON value without differences that Kubernetes ignores: nulls, empty lists and maps, spellings of quantities."""
    if isinstance(value, dict):
        members = {}
        for name, member in value.items():
            if member is None or (name in _MAPS and not member):
                continue
            if name in _QUANTITIES and isinstance(member, dict):
                members[name] = {key: _quantity(amount) for key, amount in member.items()}
                continue
            plain = canonical(member)
            if plain != []:
                members[name] = plain
        return members
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    return value


def _quantity(amount: Any) -> str:
    try:
        return str(Quantity.parse(str(amount)))
    except ValueError:
        return str(amount)


def canonical_template(template: Object, *, without_label: str = "") -> dict[str, Any]:
    """What identifies a template: its labels, annotations, finalizers and spec."""
    metadata = canonical(template.get("metadata") or {})
    metadata.pop("creationTimestamp", None)
    if without_label:
        labels = {key: label for key, label in metadata.pop("labels", {}).items() if key != without_label}
        if labels:
            metadata["labels"] = labels
    return {"metadata": metadata, "spec": canonical(template.get("spec") or {})}


@lru_cache(maxsize=512)
def template_key(template: RawJSON, without_label: str = "") -> bytes:
    """Equal for identical templates."""
    value = canonical_template(template_value(template), without_label=without_label)
    return msgspec.json.encode(value, order="deterministic")


def hash_of(data: bytes, collision_count: int | None) -> str:
    """A short name for a template, valid as a label and in names. Kubernetes hashes a dump of Go structs; hashes are never
    compared across implementations, so only the alphabet and stability matter.
    """
    digest = hashlib.blake2s(data, digest_size=4)
    if collision_count is not None:
        digest.update(b"#%d" % collision_count)
    number = int.from_bytes(digest.digest())
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(number))


def pod_matches_template_labels(labels: Mapping[str, str], metadata: ObjectMeta) -> bool:
    """Whether a pod has all labels of its template."""
    return labels.items() <= metadata.labels.items()
