"""Finds the object in question in a snapshot and explains it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from allot.core.advice.explain.causes.claims import renamed
from allot.core.advice.explain.causes.early import before_scheduling
from allot.core.advice.explain.causes.misnamed import Misnamed, misnamed
from allot.core.advice.explain.devices import users_of
from allot.core.advice.explain.gangs import explain_gang
from allot.core.advice.explain.holding import FINISHED
from allot.core.advice.explain.ignored_claims import none_added, none_made
from allot.core.advice.explain.node_supply import at_maximum, expected_of_pools, gets_node, told_by_autoscaler
from allot.core.advice.explain.pods import explain_pod, is_stuck, said
from allot.core.advice.explain.queues import explain_queue
from allot.core.advice.explain.remedies.templates import in_template, of_workload
from allot.core.advice.explain.report import Change, Explanation, Reason, State
from allot.core.advice.explain.wording import listed, named, of_several
from allot.core.advice.explain.workloads.answer import (
    BY_WORD,
    OWNED,
    Workload,
    explain_workload,
    namesakes,
    top_owner,
    wrong_workloads,
)
from allot.core.advice.explain.workloads.owners import explain_owner, owner_named
from allot.core.advice.explain.workloads.scene import Scene
from allot.core.advice.nearest import nearest
from allot.core.advice.patches import in_version
from allot.core.advice.snapshot import Snapshot, snapshot_kind
from allot.core.advice.what_if import WhatIfCluster, full_name, meta
from allot.core.autoscaling.pools import Pool
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.lifecycle.claim_owners import claim_name
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.meta import APIStruct
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling import DIALECTS, minimum_of

_WITH_GANG = "waits with its gang: "
_WITH_GANGS = "wait with their gang: "


def _of_many(line: str) -> str:
    """A sentence about one pod, in the plural."""
    if line.startswith(_WITH_GANG):
        return f"{_WITH_GANGS}{line.removeprefix(_WITH_GANG)}"
    return of_several(line)


def _of_member(cause: str, group: PodGroup, pod: core_v1.Pod) -> str:
    """Why a gang waits, said of one of its pods. A scheduler that makes a group for each pod names it after the pod: then the
    pod stands for it."""
    name, of_group = full_name(pod), full_name(group)
    if minimum_of(group) <= 1 and pod.metadata.name in group.metadata.name:
        return cause.replace(f"gang {of_group}", name).replace(of_group, name)
    return f"{name} {_WITH_GANG}{cause}"


def _sets(change: Change, path: str, value: str) -> bool:
    """Whether a change writes a value, and nothing else needs to change."""
    operations = [each for patch in change.patches for each in patch.patch]
    return len(change.patches) == 1 and any(
        each.get("path") == path and each.get("value") == value for each in operations
    )


class NotFound(Exception):
    """The object in question is not in the snapshot."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UnknownKind(Exception):
    """Nothing in the snapshot is of a kind, or names one as its owner."""


class Explainer:
    """A snapshot that answers questions."""

    def __init__(
        self,
        snapshot: Snapshot | WhatIfCluster,
        gates: FeatureGates = DEFAULT_GATES,
        *,
        pools: Sequence[Pool] = (),
    ) -> None:
        """snapshot: or a cluster made from one, whose gates then count. pools: what an autoscaler could add nodes from; without
        them, the last events of the cluster's own autoscaler are shown."""
        self._pools = pools
        self._what_if = snapshot if isinstance(snapshot, WhatIfCluster) else WhatIfCluster(snapshot, gates)
        self._scene = Scene(self._what_if, self._pod_of_workload)

    def pod(self, namespace: str, name: str, *, briefly: bool = False) -> Explanation:
        """Why a pod waits, or where it is. A pod of a gang waits for its gang. briefly: only the cause."""
        what_if = self._what_if
        pod = what_if.get(core_v1.Pod, name, namespace)
        if pod is None:
            raise self._not_found("pod", namespace, name, core_v1.Pod)
        group = what_if.group_of(pod)
        waits = not pod.spec.node_name and pod.status.phase not in FINISHED
        if group is not None and waits and before_scheduling(what_if, pod) is None:
            found = explain_gang(what_if, group, briefly=briefly)
            found = replace(found, kind="Pod", name=name, cause=_of_member(found.cause, group, pod))
        else:
            found = explain_pod(what_if, pod, briefly=briefly)
        if waits and not self._pools:
            found = none_made(what_if, pod, found)
        if briefly or not waits or found.reason in (Reason.FITS, Reason.BEING_DELETED):
            return self._served(found)
        supply = self._node_supply(pod)
        if not self._pools and not gets_node(supply):
            found = none_added(what_if, pod, found) or at_maximum(what_if, pod, found, supply)
        return self._served(replace(found, autoscaler=supply))

    def _served(self, found: Explanation) -> Explanation:
        """With patches in the version of resource.k8s.io that the cluster serves."""
        version = self._what_if.device_api
        if version == "v1":
            return found
        changes = [
            replace(change, patches=tuple(in_version(patch, version) for patch in change.patches))
            for change in found.changes
        ]
        return replace(found, changes=tuple(changes))

    def _node_supply(self, pod: core_v1.Pod) -> tuple[str, ...]:
        if self._pools:
            return expected_of_pools(self._what_if, self._pools, pod)
        return told_by_autoscaler(self._what_if, pod)

    def group(self, namespace: str, name: str) -> Explanation:
        """Why a gang waits."""
        group = self._what_if.group_named(namespace, name)
        if group is None:
            raise self._not_found("podgroup", namespace, name, PodGroup, *(dialect.type for dialect in DIALECTS))
        return self._served(explain_gang(self._what_if, group, briefly=False))

    def queue(self, name: str) -> Explanation:
        """Why jobs of a queue wait, and who must give back what."""
        tree = self._what_if.machine.book.tree
        self._what_if.machine.book.settle_total()
        queue = tree.get(name)
        if queue is None:
            meant = nearest(name, sorted(tree.all()))
            raise NotFound(f"queue {name}: not found", f"did you mean {meant}?" if meant is not None else "")
        return explain_queue(self._what_if, queue, self.pod)

    def claim(self, namespace: str, name: str) -> Explanation:
        """Why a claim has no devices, or which ones it has."""
        claim = self._what_if.get(api.ResourceClaim, name, namespace)
        if claim is None:
            raise self._not_found("claim", namespace, name, api.ResourceClaim)
        if claim.status.allocation is not None:
            return self._allocated(claim, claim.status.allocation)
        for pod in self._what_if.all(core_v1.Pod):
            if pod.metadata.namespace == namespace and any(
                claim_name(pod, entry) == name for entry in pod.spec.resource_claims
            ):
                found = self.pod(namespace, pod.metadata.name)
                cause = f"claim {namespace}/{name} has no devices yet: pod {found.cause}"
                return replace(found, kind="ResourceClaim", name=name, cause=cause)
        other = misnamed(self._what_if, claim)
        if other is not None:
            return self._misnamed(claim, other)
        cause = (
            f"claim {namespace}/{name} has no devices because no pod uses it: devices are allocated when a pod that names it is "
            "scheduled"
        )
        return said("ResourceClaim", claim, State.PENDING, Reason.UNUSED, cause)

    def _misnamed(self, claim: api.ResourceClaim, other: Misnamed) -> Explanation:
        """A claim that pods would use if they named it: first of all, they should."""
        name, pod = claim.metadata.name, other.first.pod
        found = self.pod(pod.metadata.namespace, pod.metadata.name)
        path = f"/spec/resourceClaims/{other.first.position}/resourceClaimName"
        right = [each for each in found.changes if _sets(each, path, name)]
        if not right:
            # Something else is in the way as well, so that it alone does not help.
            candidate = renamed(pod, other.first.entry, "resourceClaimName", name)
            change = Change(text=candidate.text, patches=candidate.patches)
            right = list(in_template(self._what_if, pod, (change,)))
        changes = (*right, *(each for each in found.changes if each not in right))
        in_pod = f"pod {pod.metadata.name}"
        return replace(
            found,
            kind="ResourceClaim",
            name=name,
            state=State.PENDING,
            reason=Reason.UNUSED,
            cause=f"claim {full_name(claim)} has no devices because no pod uses it: {other.text}",
            changes=tuple(replace(each, text=of_workload(each.text, in_pod, "")) for each in changes),
        )

    def workload(self, word: str, namespace: str, name: str) -> Explanation:
        """Why a workload, a volume claim or a service is not as wanted. word: one of `workloads.answer.BY_WORD`."""
        kind = BY_WORD[word]
        namespace = namespace if snapshot_kind(kind.type).namespaced else ""
        for each in dict.fromkeys((kind, *namesakes(snapshot_kind(kind.type).name))):
            object_ = self._what_if.get(each.type, name, namespace)
            if object_ is not None:
                return explain_workload(self._scene, each, object_, briefly=False)
        raise self._not_found(kind.words[0], namespace, name, kind.type)

    def owner(self, word: str, namespace: str, name: str) -> Explanation:
        """Why an object of any other kind is not as wanted: by what it has created. UnknownKind for one of which nothing is here."""
        owner = owner_named(self._scene, tuple(OWNED), word, namespace, name)
        if owner is None:
            raise UnknownKind(word)
        if not owner.metadata.name:
            raise NotFound(f"{owner.kind} {namespace}/{name}: not found, and nothing names it as its owner")
        return explain_owner(self._scene, owner, {type_: partial(self._made, kind) for type_, kind in OWNED.items()})

    def _made(self, kind: Workload, object_: APIStruct) -> Explanation:
        return explain_workload(self._scene, kind, object_, briefly=False)

    def wrong_workloads(self, namespace: str | None) -> Iterator[Explanation]:
        """Every workload that is not as wanted, with its cause only. None: all namespaces."""
        return wrong_workloads(self._scene, namespace)

    def _pod_of_workload(self, pod: core_v1.Pod, briefly: bool) -> Explanation:
        return self.pod(pod.metadata.namespace, pod.metadata.name, briefly=briefly)

    def _allocated(self, claim: api.ResourceClaim, allocation: api.AllocationResult) -> Explanation:
        devices = [f"{each.driver}/{each.pool}/{each.device}" for each in allocation.devices.results]
        users = [full_name(pod) for pod in users_of(self._what_if, claim)]
        used = f", used by {named('pod', users)}" if users else ", which no pod uses"
        cause = f"claim {full_name(claim)} is allocated: {named('device', devices)}{used}"
        return said("ResourceClaim", claim, State.PLACED, Reason.PLACED, cause)

    def overview(self, namespace: str | None) -> Iterator[str]:
        """A line for every workload that is not as wanted, and for every other pod that does not run. Pods of one gang, or with
        the same cause, share a line."""
        told = set()
        for found in self.wrong_workloads(namespace):
            told.add((found.kind, f"{found.namespace}/{found.name}"))
            yield found.cause
        gangs: dict[tuple[str, str], str] = {}
        names: dict[str, list[str]] = {}
        for of, name in self.pending(namespace):
            pod = self._what_if.get(core_v1.Pod, name, of)
            assert pod is not None, "pods that are pending are there"
            owner = top_owner(self._scene, pod)
            if (type(owner).__name__, full_name(owner)) in told:
                continue
            gang = (of, self._what_if.cluster.membership.key(pod))
            line = gangs.get(gang) if gang[1] else None
            if line is None:
                line = self.pod(of, name, briefly=True).cause.removeprefix(f"{of}/{name} ")
            if line.startswith(_WITH_GANG):
                gangs[gang] = line
            names.setdefault(line, []).append(f"{of}/{name}")
        for line, pods in names.items():
            yield f"{listed(pods)} {_of_many(line) if len(pods) > 1 else line}"

    def pending(self, namespace: str | None) -> list[tuple[str, str]]:
        """Pods that do not run, by namespace and name. None: all namespaces."""
        return sorted(
            (pod.metadata.namespace, pod.metadata.name)
            for pod in self._what_if.all(core_v1.Pod)
            if namespace in (None, pod.metadata.namespace)
            and pod.status.phase not in FINISHED
            and (pod.status.phase != "Running" or is_stuck(pod))
        )

    def _not_found(self, word: str, namespace: str, name: str, *types: type[APIStruct]) -> NotFound:
        known = [meta(found) for type_ in types for found in self._what_if.all(type_)]
        here = [each.name for each in known if each.namespace == namespace]
        elsewhere = sorted({each.namespace for each in known if each.name == name})
        hint = ""
        if elsewhere:
            hint = f"there is one in namespace {listed(elsewhere)}: -n {elsewhere[0]}"
        elif (meant := nearest(name, here)) is not None:
            hint = f"did you mean {meant}?"
        return NotFound(f"{word} {f'{namespace}/' if namespace else ''}{name}: not found", hint)
