"""The question and the answer: finds what is asked about in a snapshot and explains it."""

from __future__ import annotations

from msgspec.structs import replace

from allot.core.advice.explain.causes.early import before_scheduling
from allot.core.advice.explain.devices import users_of
from allot.core.advice.explain.gangs import explain_gang
from allot.core.advice.explain.pods import FINISHED, explain_pod, said
from allot.core.advice.explain.report import Explanation, Reason, State
from allot.core.advice.explain.wording import listed, named
from allot.core.advice.nearest import nearest
from allot.core.advice.snapshot import Snapshot
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.lifecycle.claim_owners import claim_name, group_name
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.scheduling_v1 import PodGroup


class NotFound(Exception):
    """What is asked about is not in the snapshot."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Explainer:
    """A snapshot that questions are asked about."""

    def __init__(self, snapshot: Snapshot, gates: FeatureGates = DEFAULT_GATES) -> None:
        self._what_if = WhatIfCluster(snapshot, gates)

    def pod(self, namespace: str, name: str, *, briefly: bool = False) -> Explanation:
        """Why a pod waits, or where it is. A pod of a gang waits for its gang. briefly: only the cause."""
        what_if = self._what_if
        pod = what_if.get(core_v1.Pod, name, namespace)
        if pod is None:
            raise self._not_found("pod", core_v1.Pod, namespace, name)
        group = what_if.get(PodGroup, group_name(pod), namespace)
        waits = not pod.spec.node_name and pod.status.phase not in FINISHED
        if group is not None and waits and before_scheduling(what_if, pod) is None:
            return replace(explain_gang(what_if, group, briefly=briefly), kind="Pod", name=name)
        return explain_pod(what_if, pod, briefly=briefly)

    def group(self, namespace: str, name: str) -> Explanation:
        """Why a gang waits."""
        group = self._what_if.get(PodGroup, name, namespace)
        if group is None:
            raise self._not_found("podgroup", PodGroup, namespace, name)
        return explain_gang(self._what_if, group, briefly=False)

    def claim(self, namespace: str, name: str) -> Explanation:
        """Why a claim has no devices, or which it has."""
        claim = self._what_if.get(api.ResourceClaim, name, namespace)
        if claim is None:
            raise self._not_found("claim", api.ResourceClaim, namespace, name)
        if claim.status.allocation is not None:
            return self._allocated(claim, claim.status.allocation)
        for pod in self._what_if.all(core_v1.Pod):
            if pod.metadata.namespace == namespace and any(
                claim_name(pod, entry) == name for entry in pod.spec.resource_claims
            ):
                found = self.pod(namespace, pod.metadata.name)
                cause = f"claim {namespace}/{name} has no devices yet: pod {found.cause}"
                return replace(found, kind="ResourceClaim", name=name, cause=cause)
        cause = (
            f"claim {namespace}/{name} has no devices because no pod uses it: devices are allocated when a pod that names it is "
            "scheduled"
        )
        return said("ResourceClaim", claim, State.PENDING, Reason.UNUSED, cause)

    def _allocated(self, claim: api.ResourceClaim, allocation: api.AllocationResult) -> Explanation:
        devices = [f"{each.driver}/{each.pool}/{each.device}" for each in allocation.devices.results]
        users = [full_name(pod) for pod in users_of(self._what_if, claim)]
        used = f", used by {named('pod', users)}" if users else ", which no pod uses"
        cause = f"claim {full_name(claim)} is allocated: {named('device', devices)}{used}"
        return said("ResourceClaim", claim, State.PLACED, Reason.PLACED, cause)

    def pending(self, namespace: str | None) -> list[tuple[str, str]]:
        """Pods that do not run, by namespace and name. None: of all namespaces."""
        return sorted(
            (pod.metadata.namespace, pod.metadata.name)
            for pod in self._what_if.all(core_v1.Pod)
            if namespace in (None, pod.metadata.namespace) and pod.status.phase not in (*FINISHED, "Running")
        )

    def _not_found(
        self, word: str, type_: type[core_v1.Pod | api.ResourceClaim | PodGroup], namespace: str, name: str
    ) -> NotFound:
        objects = self._what_if.all(type_)
        here = [found.metadata.name for found in objects if found.metadata.namespace == namespace]
        elsewhere = sorted({found.metadata.namespace for found in objects if found.metadata.name == name})
        hint = ""
        if elsewhere:
            hint = f"there is one in namespace {listed(elsewhere)}: -n {elsewhere[0]}"
        elif (meant := nearest(name, here)) is not None:
            hint = f"did you mean {meant}?"
        return NotFound(f"{word} {namespace}/{name}: not found", hint)
