"""What would become of a pod in a cluster that is only a file: the scheduler's core is asked, controllers are played.

Objects are kept as plain JSON, so that JSON patches can be applied to them, and are decoded for each question anew.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from allot.core.advice.snapshot import read_object
from allot.core.features import FeatureGates
from allot.core.lifecycle.actions import Action, Apply, Create, Emit, LookUp, Retry
from allot.core.lifecycle.templates import reconcile_pod, reconcile_pod_group
from allot.core.model import core_v1, resource_v1, scheduling_v1, storage_v1
from allot.core.model.codec import encode
from allot.core.model.meta import APIStruct
from allot.core.patching.json_patch import json_patch
from allot.core.quota.charge import Refusal, Request, charge, quota_of, total_usage
from allot.core.quota.claims import device_classes
from allot.core.quota.usage import QuotaContext
from allot.core.scheduling import DIALECTS, minimum_of
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.decide import decide
from allot.core.scheduling.devices.binding_conditions import Binding, binding_state, has_conditions
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.plan import Placement, Unit
from allot.core.scheduling.queueing.gates import Gates
from allot.core.scheduling.settings import DEFAULT_SETTINGS, under
from allot.core.validation.validate import prepare_create, validate_create
from allot.reading.manifests import manifests_in
from explain_corpus.queued import Played

JSON = dict[str, Any]
Key = tuple[str, str, str]
T = TypeVar("T", bound=APIStruct)

SCHEDULERS = ("default-scheduler",)
_CLAIMS = (resource_v1.GROUP, "resourceclaims")
_CONSUMERS_MAX = 256
_TERMINAL = ("Succeeded", "Failed")
_CLUSTER_WIDE = frozenset(
    (
        "CSINode",
        "DeviceClass",
        "DeviceTaintRule",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PriorityClass",
        "Queue",
        "ResourceSlice",
        "StorageClass",
    )
)
_VALIDATED = frozenset(
    ("DeviceClass", "DeviceTaintRule", "Pod", "PodGroup", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
)


class Outlook(NamedTuple):
    """Whether a pod could be bound to a node now, and what is told if not."""

    schedulable: bool
    told: str = ""
    nodes: tuple[str, ...] = ()


class Invalid(Exception):
    """A change that an API server would refuse."""


class World:
    """A cluster's objects."""

    def __init__(self, objects: Iterable[JSON], gates: FeatureGates, now: float) -> None:
        self.objects: dict[Key, JSON] = {_key(object_): copy.deepcopy(object_) for object_ in objects}
        self.gates = gates
        self.now = now

    @staticmethod
    def read(path: Path, gates: FeatureGates, now: float) -> World:
        """From a dump."""
        return World((manifest.value for manifest in manifests_in(path.read_bytes(), path.name)), gates, now)

    def of(self, kind: str) -> list[JSON]:
        """All objects of a kind."""
        return [object_ for key, object_ in self.objects.items() if key[0] == kind]

    def typed(self, kind: str, type_: type[T]) -> list[T]:
        """All objects of a kind, decoded; without those of another group that has a kind of the same name."""
        return [found for object_ in self.of(kind) if isinstance(found := read_object(object_), type_)]

    # --- changes ---

    def changed(self, changes: Sequence[JSON]) -> World:
        """The cluster after changes, once controllers have done what follows from them."""
        after = World(self.objects.values(), self.gates, self.now)
        for change in changes:
            after._change(change)
        # Pods that a dump leaves out are there all the same.
        after._settle(gone=(self._present() - after._present()) | (self._living() - after._living()))
        return after

    def _present(self) -> set[str]:
        """The uids of all pods."""
        return {pod["metadata"]["uid"] for pod in self.of("Pod")}

    def _living(self) -> set[str]:
        """The uids of the pods that are there and have not ended."""
        return {pod["metadata"]["uid"] for pod in self.of("Pod") if pod.get("status", {}).get("phase") not in _TERMINAL}

    def _change(self, change: JSON) -> None:
        action = change["action"]
        if action == "gate":
            switched = {change["name"]}
            self.gates = self.gates.changed(**{"enable" if change.get("enabled", True) else "disable": switched})
            return
        if action == "create":
            made = change["object"]
            self._put({**made, "metadata": {"uid": f"new-{made['metadata']['name']}", **made["metadata"]}})
            return
        kind, name = change["kind"], change["name"]
        namespace = "" if kind in _CLUSTER_WIDE else change.get("namespace") or "default"
        key = (kind, namespace, name)
        if key not in self.objects:
            raise Invalid(f"{action} of {kind} {namespace}/{name}, which does not exist")
        before = self.objects[key]
        if action == "delete":
            del self.objects[key]
            return
        if action != "patch":
            raise Invalid(f"unknown action {action!r}")
        self._put(json_patch(copy.deepcopy(before), change["patch"]))
        if kind == "ResourceClaimTemplate" or (kind == "Pod" and before.get("spec") != self.objects[key].get("spec")):
            self._remake_claims(key)
        if kind == "ResourceClaim" and before.get("spec") != self.objects[key].get("spec") and _owner(before, "Pod"):
            # Nobody can change the claim that was made from a template: if it goes, it comes back as before.
            del self.objects[key]

    def _put(self, object_: JSON) -> None:
        # Of other schedulers' kinds the API server knows no more than their schema.
        is_foreign = object_.get("kind") == "PodGroup" and not object_["apiVersion"].startswith("scheduling.k8s.io/")
        if object_.get("kind") in _VALIDATED and not is_foreign:
            prepared = prepare_create(object_, gates=self.gates, now=None, namespace="default")
            errors = validate_create(prepared, gates=self.gates)
            if errors:
                raise Invalid(f"{object_['kind']} {object_['metadata'].get('name')}: {errors[0]}")
        self.objects[_key(object_)] = object_

    def _remake_claims(self, changed: Key) -> None:
        """The claims of waiting pods that come from a template, or from the templates of one pod, are made anew."""
        kind, namespace, name = changed
        for pod in self.of("Pod"):
            metadata, spec = pod["metadata"], pod["spec"]
            if metadata.get("namespace", "default") != namespace or spec.get("nodeName"):
                continue
            entries = [entry for entry in spec.get("resourceClaims", ()) if entry.get("resourceClaimTemplateName")]
            if kind == "Pod":
                touched = {entry["name"] for entry in entries} if metadata["name"] == name else set()
            else:
                touched = {entry["name"] for entry in entries if entry["resourceClaimTemplateName"] == name}
            statuses = pod.get("status", {}).get("resourceClaimStatuses", ())
            for status in [status for status in statuses if status["name"] in touched]:
                self.objects.pop(("ResourceClaim", namespace, status.get("resourceClaimName", "")), None)

    # --- controllers ---

    def _settle(self, gone: set[str]) -> None:
        for claim in self.of("ResourceClaim"):
            owner = _owner(claim, "Pod")
            if owner in gone:
                del self.objects[_key(claim)]
                continue
            self._release(claim, gone)
            if claim["metadata"].get("deletionTimestamp") and not claim.get("status", {}).get("reservedFor"):
                del self.objects[_key(claim)]

    @staticmethod
    def _release(claim: JSON, gone: set[str]) -> None:
        status = claim.get("status", {})
        users = status.get("reservedFor", [])
        left = [user for user in users if user["uid"] not in gone]
        if len(left) == len(users):
            return
        status["reservedFor"] = left
        if not left:
            status.pop("allocation", None)

    def _make_claims(self, pod: core_v1.Pod) -> str:
        """Make the claims of a pod and its group from their templates; what is told if that fails."""
        view = _View(self)
        group = view.pod_group(f"{pod.metadata.namespace}/{_group(pod)}")
        if group is not None:
            made = group
            told = self._do(made, _asked(lambda answers: reconcile_pod_group(made, view, answers, self.gates)))
            if told:
                return told
        return self._do(pod, _asked(lambda answers: reconcile_pod(pod, view, answers, self.gates)))

    def _do(self, owner: core_v1.Pod | scheduling_v1.PodGroup, actions: Iterable[Action]) -> str:
        for action in actions:
            if isinstance(action, Emit):
                return action.note
            if isinstance(action, Retry):
                return action.message
            if isinstance(action, Create):
                assert isinstance(action.object, resource_v1.ResourceClaim)
                refused = self._create_claim(action.object)
                if refused:
                    return refused
            if isinstance(action, Apply):
                kind = "Pod" if isinstance(owner, core_v1.Pod) else "PodGroup"
                object_ = self.objects[kind, owner.metadata.namespace, owner.metadata.name]
                object_.setdefault("status", {}).update(action.fields["status"])
        return ""

    def _create_claim(self, claim: resource_v1.ResourceClaim) -> str:
        """What the API server says against a claim that a controller wants to create."""
        namespace = claim.metadata.namespace
        value = encode(claim)
        labels = self.objects.get(("Namespace", "", namespace), {}).get("metadata", {}).get("labels", {})
        prepared = prepare_create(value, gates=self.gates, now=None, namespace=namespace)
        errors = validate_create(prepared, gates=self.gates, namespace_labels=labels)
        if errors:
            return f"create ResourceClaim: {errors[0]}"
        around = QuotaContext(now="", classes=device_classes(self.of("DeviceClass")))
        claims = [object_ for object_ in self.of("ResourceClaim") if _key(object_)[1] == namespace]
        for object_ in self.of("ResourceQuota"):
            if _key(object_)[1] != namespace:
                continue
            hard = object_["spec"].get("hard", {})
            quota = quota_of(object_ | {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})
            used = total_usage(quota, [(_CLAIMS, claims)], around)
            found = charge(_with_usage(quota, used), Request(kind=_CLAIMS, object=value), around)
            if isinstance(found, Refusal):
                return f"create ResourceClaim: {found.message}"
        self.objects[_key(value)] = value
        return ""

    # --- the question ---

    def outlook(self, target: str, namespace: str) -> Outlook:
        """What becomes of a pod (`pod/NAME`) or gang (`podgroup/NAME`)."""
        return World(self.objects.values(), self.gates, self.now)._outlook(target, namespace)

    def _outlook(self, target: str, namespace: str) -> Outlook:
        kind, _, name = target.rpartition("/")
        waiting = [pod for pod in self._pods(namespace) if not pod.spec.node_name and pod.status.phase not in _TERMINAL]
        if kind == "podgroup":
            wanted = [pod for pod in waiting if name in (_group(pod), *_foreign_groups(pod))]
        else:
            wanted = [pod for pod in self._pods(namespace) if pod.metadata.name == name]
            assert wanted, f"no pod {namespace}/{name}"
        for pod in wanted:
            told = self._before(pod)
            if told:
                return Outlook(False, told)
            told = self._make_claims(pod)
            if told:
                return Outlook(False, told)
        if self.of("Queue"):
            return self._queued(wanted)
        names = {pod.metadata.name for pod in wanted}
        fresh = tuple(pod for pod in self._pods(namespace) if pod.metadata.name in names)
        group = self._group_of(fresh, namespace)
        unit = Unit(pods=fresh, group=group)
        claims = Claims(self.gates)
        cluster = self._cluster(claims)
        closed = Gates(claims, cluster).closed(unit, f"{namespace}/{_group(fresh[0])}" if group else "")
        if closed is not None:
            return Outlook(False, "; ".join(closed.status.reasons))
        decision = decide(cluster, unit, under(self.gates, DEFAULT_SETTINGS), self.now)
        enough = minimum_of(group) if group is not None else len(fresh)
        if len(decision.placements) >= enough:
            told = next((text for placement in decision.placements if (text := self._after(placement))), "")
            return Outlook(not told, told, tuple(placement.node for placement in decision.placements))
        told = "; ".join(refusal.message for refusal in decision.refusals)
        if decision.group is not None:
            told = f"{decision.group.message}; {told}"
        return Outlook(False, told)

    def _queued(self, wanted: Sequence[core_v1.Pod]) -> Outlook:
        """Where queues have a say, the scheduler goes on for a while."""
        played = Played(self.objects.values(), self.gates, self.now)
        played.run()
        keys = [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in wanted]
        nodes = tuple(played.node_of(key) for key in keys)
        return Outlook(all(nodes), "; ".join(told for key in keys if (told := played.told(key))), nodes)

    def _pods(self, namespace: str) -> list[core_v1.Pod]:
        return [pod for pod in self.typed("Pod", core_v1.Pod) if pod.metadata.namespace == namespace]

    def _before(self, pod: core_v1.Pod) -> str:
        """Why the scheduler does not look at a pod."""
        if pod.metadata.deletion_timestamp is not None:
            return "pod is being deleted"
        if pod.spec.node_name:
            return f"pod is on node {pod.spec.node_name}: {self._last_event(pod)}"
        if pod.spec.scheduling_gates:
            return "waiting for scheduling gates: " + " ".join(gate.name for gate in pod.spec.scheduling_gates)
        placing = {each.spec.scheduler_name for each in self.typed("Pod", core_v1.Pod) if each.spec.node_name}
        if pod.spec.scheduler_name not in (*SCHEDULERS, *placing):
            return f"no scheduler is called {pod.spec.scheduler_name}"
        return ""

    def _after(self, placement: Placement) -> str:
        """Why a pod is not bound although there is a node for it."""
        for step in placement.claims:
            name, status = step.claim.metadata.name, step.claim.status
            if step.consumer is not None and len(status.reserved_for) >= _CONSUMERS_MAX:
                return f"claim {name}: status.reservedFor: Too many: must have at most {_CONSUMERS_MAX} items"
        decided = [
            replace(step.claim, status=replace(step.claim.status, allocation=step.allocation))
            for step in placement.claims
            if step.allocation
        ]
        uid = placement.pod.metadata.uid
        held = [
            claim
            for claim in self.typed("ResourceClaim", resource_v1.ResourceClaim)
            if any(consumer.uid == uid for consumer in claim.status.reserved_for)
        ]
        for claim in (*decided, *held):
            if has_conditions(claim) and binding_state(claim, self.now).binding is not Binding.READY:
                return f"claim {claim.metadata.name}: waiting for binding conditions"
        return ""

    def _last_event(self, pod: core_v1.Pod) -> str:
        notes = [
            str(event.get("message") or event.get("note"))
            for event in self.of("Event")
            if (event.get("involvedObject") or event.get("regarding") or {}).get("name") == pod.metadata.name
        ]
        return notes[-1] if notes else ""

    def _group_of(self, pods: Sequence[core_v1.Pod], namespace: str) -> scheduling_v1.PodGroup | None:
        names = {_group(pod) for pod in pods}
        for group in self.typed("PodGroup", scheduling_v1.PodGroup):
            if group.metadata.namespace == namespace and group.metadata.name in names:
                return group
        return None

    def _cluster(self, claims: Claims) -> Cluster:
        cluster = Cluster(claims)
        claims.listen(cluster.device_changes.add)
        for device_class in self.typed("DeviceClass", resource_v1.DeviceClass):
            claims.put_class(device_class)
        for slice_ in self.typed("ResourceSlice", resource_v1.ResourceSlice):
            claims.put_slice(slice_)
        for rule in self.typed("DeviceTaintRule", resource_v1.DeviceTaintRule):
            claims.put_taint_rule(rule)
        for claim in self.typed("ResourceClaim", resource_v1.ResourceClaim):
            claims.put_claim(claim)
        for group in self.typed("PodGroup", scheduling_v1.PodGroup):
            claims.put_pod_group(group)
            cluster.put_group(group)
        for namespace in self.typed("Namespace", core_v1.Namespace):
            cluster.put_namespace(namespace.metadata.name, namespace.metadata.labels)
        for volume_claim in self.typed("PersistentVolumeClaim", core_v1.PersistentVolumeClaim):
            cluster.volumes.put_claim(volume_claim)
        for volume in self.typed("PersistentVolume", core_v1.PersistentVolume):
            cluster.volumes.put_volume(volume)
        for csi_node in self.typed("CSINode", storage_v1.CSINode):
            cluster.volumes.put_csi_node(csi_node)
        for storage_class in self.typed("StorageClass", storage_v1.StorageClass):
            cluster.volumes.put_class(storage_class)
        for node in self.typed("Node", core_v1.Node):
            cluster.put_node(node)
        for pod in self.typed("Pod", core_v1.Pod):
            cluster.put_pod(pod)
        return cluster


class _View:
    """A world as the controller for claims sees it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def pod_group(self, key: str) -> scheduling_v1.PodGroup | None:
        return self._one("PodGroup", key, scheduling_v1.PodGroup)

    def claim(self, key: str) -> resource_v1.ResourceClaim | None:
        return self._one("ResourceClaim", key, resource_v1.ResourceClaim)

    def claims_made_for(self, uid: str) -> Iterator[resource_v1.ResourceClaim]:
        for claim in self._world.of("ResourceClaim"):
            if uid in (_owner(claim, "Pod"), _owner(claim, "PodGroup")):
                yield _decoded(claim, resource_v1.ResourceClaim)

    def template(self, key: str) -> resource_v1.ResourceClaimTemplate | None:
        return self._one("ResourceClaimTemplate", key, resource_v1.ResourceClaimTemplate)

    def _one(self, kind: str, key: str, type_: type[T]) -> T | None:
        namespace, _, name = key.partition("/")
        found = self._world.objects.get((kind, namespace, name))
        return None if found is None else _decoded(found, type_)


def _asked(reconcile: Any) -> tuple[Action, ...]:
    """The actions of a controller. What it looks up because a cache may lag behind is not there: nothing lags here."""
    answers: dict[LookUp, Any] = {}
    while True:
        actions: tuple[Action, ...] = reconcile(answers)
        questions = [action for action in actions if isinstance(action, LookUp)]
        if not questions:
            return actions
        answers.update(dict.fromkeys(questions))


def _with_usage(quota: Any, used: Mapping[str, Any]) -> Any:
    return type(quota)(name=quota.name, spec=quota.spec, hard=quota.hard, used=used)


def _decoded(object_: JSON, type_: type[T]) -> T:
    found = read_object(object_)
    assert isinstance(found, type_)
    return found


def _group(pod: core_v1.Pod) -> str:
    group = pod.spec.scheduling_group
    return (group.pod_group_name or "") if group is not None else ""


def _foreign_groups(pod: core_v1.Pod) -> tuple[str, ...]:
    return tuple(name for dialect in DIALECTS if (name := dialect.name_in(pod)))


def _owner(object_: JSON, kind: str) -> str:
    """The uid of the owner of a kind; empty without one."""
    owners = object_["metadata"].get("ownerReferences", ())
    return next((str(owner["uid"]) for owner in owners if owner["kind"] == kind), "")


def _key(object_: JSON) -> Key:
    metadata = object_["metadata"]
    kind = object_["kind"]
    return kind, "" if kind in _CLUSTER_WIDE else metadata.get("namespace") or "default", metadata["name"]
