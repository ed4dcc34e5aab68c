"""Short ways to workloads and their pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from allot.core.lifecycle.actions import Action, Create, Delete, Emit, Resource, Together, Update
from allot.core.lifecycle.times import time_of
from allot.core.model.apps_v1 import ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet
from allot.core.model.codec import decode_served
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import APIStruct
from allot.core.model.policy_v1 import PodDisruptionBudget
from allot.core.workloads.ownership import reference_to
from allot.core.workloads.resources import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from allot.core.workloads.whole import Whole, whole

Object = dict[str, Any]

NOW_S = 1_700_000_000.0
_KINDS: Mapping[type[APIStruct], Resource] = {
    Deployment: DEPLOYMENTS,
    ReplicaSet: REPLICA_SETS,
    StatefulSet: STATEFUL_SETS,
    DaemonSet: DAEMON_SETS,
    ControllerRevision: CONTROLLER_REVISIONS,
    PodDisruptionBudget: POD_DISRUPTION_BUDGETS,
}


def template(image: str = "app:1", **spec: Any) -> Object:
    """A template of pods."""
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": image}], **spec}}


def workload(
    type_: type[APIStruct], name: str = "x", *, status: Object | None = None, meta: Object | None = None, **spec: Any
) -> Whole[Any]:
    """A workload as a server would send it."""
    whole_spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template(), **spec}
    return made(type_, {"metadata": _meta(name, meta), "spec": whole_spec, "status": status or {}})


def made(type_: type[APIStruct], object_: Object) -> Whole[Any]:
    """Any object as a server would send it."""
    resource = _KINDS[type_]
    return whole(resource, type_, {"apiVersion": resource.api_version, "kind": resource.kind, **object_})


def _meta(name: str, more: Object | None) -> Object:
    return {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1", "generation": 1} | (
        more or {}
    )


def pod(
    name: str,
    *,
    owner: Whole[Any] | None = None,
    phase: str = "Running",
    ready_s: float | None = None,
    node: str = "n",
    labels: Object | None = None,
    created_s: float = NOW_S - 1000,
    deleted: bool = False,
    restarts: int = 0,
    cost: str = "",
    spec: Object | None = None,
    uid: str = "",
) -> Pod:
    """A pod. ready_s: for how long it has been ready."""
    metadata: Object = {
        "name": name,
        "namespace": "ns",
        "uid": uid or f"uid-{name}",
        "labels": {"app": "x", **(labels or {})},
        "creationTimestamp": time_of(created_s),
    }
    if owner is not None:
        metadata["ownerReferences"] = [reference_to(owner.resource, owner.metadata)]
    if deleted:
        metadata["deletionTimestamp"] = time_of(NOW_S)
    if cost:
        metadata["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    conditions = [
        {
            "type": "Ready",
            "status": "False" if ready_s is None else "True",
            "lastTransitionTime": time_of(NOW_S - (ready_s or 0)),
        }
    ]
    statuses = [{"name": "c", "restartCount": restarts}]
    status = {"phase": phase, "conditions": conditions, "containerStatuses": statuses}
    whole_spec = {"containers": [{"name": "c"}], **({"nodeName": node} if node else {}), **(spec or {})}
    return decode_served({"metadata": metadata, "spec": whole_spec, "status": status}, Pod)


def ready(name: str, **more: Any) -> Pod:
    """A pod that has been ready for long."""
    return pod(name, ready_s=500, **more)


# --- what was decided ---


def writes(actions: Iterable[Action]) -> list[Any]:
    """All writes, one by one."""
    found: list[Any] = []
    for action in actions:
        if isinstance(action, Together):
            found += action.writes
        elif isinstance(action, Create | Update | Delete):
            found.append(action)
    return found


def created(actions: Iterable[Action], plural: str = "pods") -> list[Object]:
    """The objects that are made."""
    return [dict(one.object) for one in writes(actions) if isinstance(one, Create) and one.resource.plural == plural]


def deleted(actions: Iterable[Action], plural: str = "pods") -> list[str]:
    """The names of what is deleted."""
    return [one.name for one in writes(actions) if isinstance(one, Delete) and one.resource.plural == plural]


def status_of(actions: Iterable[Action]) -> Object:
    """The status that is written; empty if none is."""
    found = [one.object["status"] for one in writes(actions) if isinstance(one, Update) and one.subresource == "status"]
    return found[-1] if found else {}


def notes(actions: Iterable[Action]) -> list[str]:
    """What is told about writes, if they succeed, and without any."""
    found: list[str] = []
    for action in actions:
        if isinstance(action, Emit):
            found.append(action.note)
        for write in writes((action,)):
            if write.on_success is not None:
                found.append(write.on_success.note)
    return found


def conditions(status: Object) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message by type."""
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in status.get("conditions", ())}


def names(objects: Sequence[Any]) -> list[str]:
    """Their names."""
    return [each.metadata.name for each in objects]
