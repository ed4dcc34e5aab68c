"""The garbage collector's decisions as actions: `garbage` decides, this module builds the requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allot.core.lifecycle import actions
from allot.core.lifecycle.actions import WARNING, Action, Answers, Emit, LookUp, Patch, RequeueAfter, Resource, Retry
from allot.core.lifecycle.garbage import (
    ORPHAN,
    Decision,
    Delete,
    DropOwners,
    OrphanDependents,
    OwnerGraph,
    OwnerState,
    RemoveFinalizer,
    Tracked,
    Unresolved,
    Verify,
    coordinates,
    decide,
    group_of,
    tracked,
)
from allot.core.model.meta import OwnerReference

# The server has an owner that no watch has reported: its deletion might be missed too, so its dependents are checked again.
_UNSEEN_OWNER_S = 30.0


def reconcile(graph: OwnerGraph, uid: str, answers: Answers) -> tuple[Action, ...]:
    """What to do about an object."""
    target = graph.get(uid)
    if target is None:
        return ()
    asked = _said(graph, target, answers)
    return (*_complaints(graph, target), *_actions(target, decide(graph, uid, asked), asked))


def _actions(target: Tracked, decision: Decision, asked: Mapping[str, OwnerState]) -> tuple[Action, ...]:
    match decision:
        case Verify():
            return tuple(_question(owner, kind, target.namespace) for owner, kind in decision.owners)
        case Unresolved():
            owner = decision.owner
            return (Retry(message=f"owner {owner.name!r} is of unknown kind {owner.api_version}/{owner.kind}"),)
        case RemoveFinalizer():
            return (_patch(target, {"finalizers": _without(target.finalizers, decision.finalizer)}),)
        case OrphanDependents():
            freed = (_without_owners(one, (target.uid,)) for one in decision.dependents)
            return (*freed, _patch(target, {"finalizers": _without(target.finalizers, ORPHAN)}))
        case DropOwners():
            return (_without_owners(target, decision.uids),)
        case Delete():
            return _deletion(decision)
        case _:
            unseen = decision is None and OwnerState.PRESENT in asked.values()
            return (RequeueAfter(seconds=_UNSEEN_OWNER_S),) if unseen else ()


def _deletion(decision: Delete) -> tuple[Action, ...]:
    target = decision.target
    delete = actions.Delete(
        resource=target.resource,
        name=target.name,
        namespace=target.namespace,
        uid=target.uid,
        # Owners added in the meantime must not be overlooked.
        resource_version="" if decision.unblock else target.version,
        propagation_policy=decision.propagation,
    )
    if not decision.unblock:
        return (delete,)
    owners = (msgspec.structs.replace(owner, block_owner_deletion=False) for owner in target.owners)
    return (_patch(target, {"ownerReferences": [msgspec.to_builtins(owner) for owner in owners]}), delete)


def _question(owner: OwnerReference, kind: Resource, namespace: str) -> LookUp:
    return LookUp(resource=kind, name=owner.name, namespace=namespace if kind.namespaced else "")


def _said(graph: OwnerGraph, target: Tracked, answers: Answers) -> dict[str, OwnerState]:
    """The server's answers about owners, by uid; absent ones are remembered."""
    states: dict[str, OwnerState] = {}
    if not answers:
        return states
    for owner in target.owners:
        kind = graph.kinds.get((group_of(owner.api_version), owner.kind))
        if kind is None or (question := _question(owner, kind, target.namespace)) not in answers:
            continue
        found = answers[question]
        if found is None or found["metadata"].get("uid") != owner.uid:
            graph.remember_absent(coordinates(owner, kind, target.namespace))
            states[owner.uid] = OwnerState.ABSENT
        else:
            waits = tracked(kind, found).deletes_dependents
            states[owner.uid] = OwnerState.WAITING if waits else OwnerState.PRESENT
    return states


def _without(names: tuple[str, ...], name: str) -> list[str] | None:
    return [one for one in names if one != name] or None


def _without_owners(target: Tracked, uids: tuple[str, ...]) -> Patch:
    kept = [msgspec.to_builtins(owner) for owner in target.owners if owner.uid not in uids]
    return _patch(target, {"ownerReferences": kept or None})


def _patch(target: Tracked, fields: dict[str, Any]) -> Patch:
    """A merge patch, refused if the object has changed since it was read."""
    return Patch(
        resource=target.resource,
        name=target.name,
        namespace=target.namespace,
        patch={"metadata": {"uid": target.uid, "resourceVersion": target.version, **fields}},
    )


def _complaints(graph: OwnerGraph, target: Tracked) -> tuple[Emit, ...]:
    """One event for each reference into another namespace, with Kubernetes' message."""
    kind, namespace = target.resource, target.namespace
    about = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": target.name, "namespace": namespace, "uid": target.uid},
    }
    return tuple(
        Emit(
            regarding=about,
            type=WARNING,
            reason="OwnerRefInvalidNamespace",
            action="GarbageCollection",
            note=f"ownerRef [{owner.api_version}/{owner.kind}, namespace: {namespace}, name: {owner.name}, uid: "
            f'{owner.uid}] does not exist in namespace "{namespace}"',
        )
        for owner in graph.misplaced(target)
    )
