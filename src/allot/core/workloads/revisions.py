"""Revisions of templates (ControllerRevision): the history of StatefulSets and DaemonSets, to which kubectl rolls back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.lifecycle.actions import Action, Create, Delete, Resource, Update
from allot.core.model.apps_v1 import ControllerRevision
from allot.core.model.meta import ObjectMeta, RawJSON
from allot.core.workloads.ownership import reference_to
from allot.core.workloads.pod_templates import canonical_template, hash_of, template_key, template_value
from allot.core.workloads.resources import CONTROLLER_REVISIONS
from allot.core.workloads.whole import Object, Whole

_PREFIX_LENGTH_MAX = 223


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """One template of a set. whole is None while it is only planned."""

    name: str
    number: int
    # The label value of revisions with the same hash.
    hash: str
    template: Object
    whole: Whole[ControllerRevision] | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The desired history of a set: the revision of its current template, and the writes for it."""

    update: Revision
    # From oldest to newest, without planned ones.
    history: tuple[Revision, ...]
    collision_count: int
    writes: tuple[Action, ...] = ()

    def named(self, name: str) -> Revision | None:
        """The revision of a name."""
        return next((each for each in (*self.history, self.update) if each.name == name), None)


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a history."""

    resource: Resource
    metadata: ObjectMeta
    template: RawJSON
    collision_count: int
    # The label with a revision's hash.
    hash_label: str


def revision_of(whole: Whole[ControllerRevision], hash_label: str) -> Revision:
    """An existing revision."""
    value = whole.value
    data = value.data.value() if value.data is not None else {}
    template = dict(((data or {}).get("spec") or {}).get("template") or {})
    template.pop("$patch", None)
    return Revision(
        name=value.metadata.name,
        number=value.revision,
        hash=value.metadata.labels.get(hash_label, ""),
        template=template,
        whole=whole,
    )


def plan(
    owner: Owner,
    revisions: Iterable[Whole[ControllerRevision]],
    named: Callable[[str], Whole[ControllerRevision] | None],
) -> Plan:
    """Find or plan the revision of the current template: the newest with the same template gets the highest number.

    revisions: those of the owner. named: any revision in its namespace by name, for hash collisions.
    """
    history = sorted((revision_of(each, owner.hash_label) for each in revisions), key=_age)
    key = template_key(owner.template)
    number = history[-1].number + 1 if history else 1
    equal = [each for each in history if key_of(each) == key]
    if equal:
        found = equal[-1]
        if found is history[-1]:
            return Plan(update=found, history=tuple(history), collision_count=owner.collision_count)
        assert found.whole is not None
        raised = Update(resource=CONTROLLER_REVISIONS, object=found.whole.with_parts(revision=number))
        update = msgspec.structs.replace(found, number=number)
        return Plan(update=update, history=tuple(history), collision_count=owner.collision_count, writes=(raised,))
    collision_count = owner.collision_count
    while True:
        hash_ = hash_of(key, collision_count)
        name = f"{owner.metadata.name[:_PREFIX_LENGTH_MAX]}-{hash_}"
        taken = named(name)
        if taken is None:
            break
        other = revision_of(taken, owner.hash_label)
        if key_of(other) == key:
            # It has our name and template; its owner will become known.
            return Plan(update=other, history=tuple(history), collision_count=collision_count)
        collision_count += 1
    template = template_value(owner.template)
    update = Revision(name=name, number=number, hash=hash_, template=template)
    create = _creation(owner, update)
    return Plan(update=update, history=tuple(history), collision_count=collision_count, writes=(create,))


def key_of(revision: Revision) -> bytes:
    """Equal for revisions of the same template."""
    return msgspec.json.encode(canonical_template(revision.template), order="deterministic")


def _age(revision: Revision) -> tuple[int, str, str]:
    created = revision.whole.metadata.creation_timestamp if revision.whole is not None else None
    return revision.number, created or "", revision.name


def _creation(owner: Owner, revision: Revision) -> Create:
    labels = dict((revision.template.get("metadata") or {}).get("labels") or {})
    labels[owner.hash_label] = revision.hash
    metadata: dict[str, Any] = {
        "name": revision.name,
        "namespace": owner.metadata.namespace,
        "labels": labels,
        "ownerReferences": [reference_to(owner.resource, owner.metadata)],
    }
    if owner.metadata.annotations:
        # kubectl shows the cause of a change from these.
        metadata["annotations"] = dict(owner.metadata.annotations)
    object_ = {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": metadata,
        "data": _in_order({"spec": {"template": {**revision.template, "$patch": "replace"}}}),
        "revision": revision.number,
    }
    return Create(resource=CONTROLLER_REVISIONS, object=object_, namespace=owner.metadata.namespace)


def truncated(history: Sequence[Revision], live: Mapping[str, object], limit: int | None) -> tuple[Action, ...]:
    """Delete the oldest unused revisions beyond the limit. live: names of those in use."""
    unused = [each for each in history if each.name not in live]
    excess = len(unused) - (10 if limit is None else limit)
    return tuple(_deletion(each) for each in unused[: max(0, excess)])


def _deletion(revision: Revision) -> Delete:
    assert revision.whole is not None
    metadata = revision.whole.metadata
    return Delete(resource=CONTROLLER_REVISIONS, name=revision.name, namespace=metadata.namespace, uid=metadata.uid)


def _in_order(data: Object) -> Object:
    """The members in the order in which Go writes them.

    kube-apiserver compares the data as text. Any patch, such as the one of the owner on adoption, puts them into this order; from
    another order that would be a change of the data, which is refused.
    """
    ordered: Object = msgspec.json.decode(msgspec.json.encode(data, order="sorted"))
    return ordered
