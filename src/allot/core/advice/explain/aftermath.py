"""What controllers do after a change: they create claims from templates, delete claims of deleted pods and free devices without
users. Only what decides whether a pod can then be scheduled.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from allot.core.advice.what_if import Journal, WhatIfCluster, as_json
from allot.core.lifecycle.actions import Action, Answers, Apply, Create, Emit, LookUp, Retry
from allot.core.lifecycle.claim_owners import claim_name, is_made_for, owner_uids, owning_pod
from allot.core.lifecycle.templates import reconcile_pod, reconcile_pod_group
from allot.core.model import core_v1, observed_v1
from allot.core.model import resource_v1 as api
from allot.core.model.codec import encode
from allot.core.model.meta import APIStruct
from allot.core.model.scheduling_v1 import PodGroup, PodGroupResourceClaimStatus
from allot.core.quota.charge import Refusal, Request, charge, quota_of
from allot.core.quota.claims import device_classes
from allot.core.quota.usage import CLAIMS, QuotaContext
from allot.core.validation.claim import check_admin_access

Owner = core_v1.Pod | PodGroup


def settle(what_if: WhatIfCluster, journal: Journal, pods: list[tuple[str, str]]) -> None:
    """Do what follows from the changes in the journal. pods: those in question, by namespace and name; only their
    claims are created."""
    changed = [key for key, _ in journal]
    before = {key: object_ for key, object_ in journal if object_ is not None}
    for (type_, namespace, name), object_ in list(before.items()):
        if type_ is core_v1.Pod and what_if.get(core_v1.Pod, name, namespace) is None:
            assert isinstance(object_, core_v1.Pod)
            _pod_is_gone(what_if, object_, journal)
    templates = {(namespace, name) for type_, namespace, name in changed if type_ is api.ResourceClaimTemplate}
    specs = {(namespace, name) for type_, namespace, name in changed if type_ is core_v1.Pod}
    for namespace, name in pods:
        pod = what_if.get(core_v1.Pod, name, namespace)
        if pod is None or pod.spec.node_name:
            continue
        for entry in pod.spec.resource_claims:
            template = entry.resource_claim_template_name
            if template is not None and ((namespace, template) in templates or (namespace, name) in specs):
                claim = what_if.get(api.ResourceClaim, claim_name(pod, entry), namespace)
                if claim is not None and is_made_for(pod, claim, accepts_group=False):
                    what_if.delete(claim, journal)
        make_claims(what_if, pod, journal)


def _pod_is_gone(what_if: WhatIfCluster, pod: core_v1.Pod, journal: Journal) -> None:
    for namespace, name in what_if.claims.claims_of(pod):
        claim = what_if.get(api.ResourceClaim, name, namespace)
        if claim is None:
            continue
        owner = owning_pod(claim)
        if owner is not None and owner.uid == pod.metadata.uid:
            what_if.delete(claim, journal)
            continue
        left = tuple(user for user in claim.status.reserved_for if user.uid != pod.metadata.uid)
        if len(left) == len(claim.status.reserved_for):
            continue
        if not left and claim.metadata.deletion_timestamp is not None:
            what_if.delete(claim, journal)
            continue
        status = replace(claim.status, reserved_for=left, allocation=claim.status.allocation if left else None)
        what_if.put(replace(claim, status=status), journal)


# --- claims from templates ---


def make_claims(what_if: WhatIfCluster, pod: core_v1.Pod, journal: Journal) -> str:
    """Create the missing claims of a pod and of its group; returns the error if that fails."""
    group = what_if.claims.pod_group_of(pod)
    if group is not None:
        told = _made(what_if, group, journal)
        if told:
            return told
    return _made(what_if, pod, journal)


def _made(what_if: WhatIfCluster, owner: Owner, journal: Journal) -> str:
    answers: Answers = {}
    view = _View(what_if)
    while True:
        actions: tuple[Action, ...]
        if isinstance(owner, core_v1.Pod):
            actions = reconcile_pod(owner, view, answers, what_if.gates)
        else:
            actions = reconcile_pod_group(owner, view, answers, what_if.gates)
        questions = [action for action in actions if isinstance(action, LookUp)]
        if not questions:
            break
        # No cache lags behind here: an unknown object does not exist.
        answers = {**answers, **dict.fromkeys(questions)}
    names: dict[str, str] = {}
    for action in actions:
        if isinstance(action, Emit):
            return action.note
        if isinstance(action, Retry):
            return action.message
        if isinstance(action, Create) and isinstance(action.object, api.ResourceClaim):
            claim = action.object
            refused = creation_refusal(what_if, claim)
            if refused:
                return refused
            what_if.put(replace(claim, metadata=replace(claim.metadata, uid=f"new-{claim.metadata.name}")), journal)
        if isinstance(action, Apply):
            statuses = action.fields["status"]["resourceClaimStatuses"]
            names = {status["name"]: status["resourceClaimName"] for status in statuses}
    if names:
        what_if.put(_recorded(owner, names), journal)
    return ""


def _recorded(owner: Owner, names: dict[str, str]) -> Owner:
    if isinstance(owner, core_v1.Pod):
        kept = [status for status in owner.status.resource_claim_statuses if status.name not in names]
        new = [core_v1.PodResourceClaimStatus(name=entry, resource_claim_name=name) for entry, name in names.items()]
        return replace(owner, status=replace(owner.status, resource_claim_statuses=(*kept, *new)))
    others = [status for status in owner.status.resource_claim_statuses if status.name not in names]
    made = [PodGroupResourceClaimStatus(name=entry, resource_claim_name=name) for entry, name in names.items()]
    return replace(owner, status=replace(owner.status, resource_claim_statuses=(*others, *made)))


def creation_refusal(what_if: WhatIfCluster, claim: api.ResourceClaim) -> str:
    """Why the API server would refuse a new claim; empty if it would accept it."""
    namespace = claim.metadata.namespace
    found = what_if.get(core_v1.Namespace, namespace)
    if found is not None:
        for finding in check_admin_access(claim.spec.devices.requests, found.metadata.labels):
            return str(finding.error)
    quotas = [quota for quota in what_if.all(observed_v1.ResourceQuota) if quota.metadata.namespace == namespace]
    if not quotas:
        return ""
    around = QuotaContext(now="", classes=device_classes([encode(class_) for class_ in what_if.all(api.DeviceClass)]))
    for quota in quotas:
        refused = charge(quota_of(_with_status(quota)), Request(kind=CLAIMS, object=encode(claim)), around)
        if isinstance(refused, Refusal):
            return refused.message
    return ""


def _with_status(quota: observed_v1.ResourceQuota) -> dict[str, object]:
    """A quota after its controller has seen a change of its limits."""
    value = as_json(quota)
    hard = value.get("spec", {}).get("hard", {})
    used = value.get("status", {}).get("used", {})
    return {**value, "status": {"hard": hard, "used": {name: used.get(name, "0") for name in hard}}}


class _View:
    """The cluster as the resource claim controller sees it."""

    def __init__(self, what_if: WhatIfCluster) -> None:
        self._what_if = what_if

    def _one(self, type_: type[APIStruct], key: str) -> APIStruct | None:
        namespace, _, name = key.partition("/")
        return self._what_if.get(type_, name, namespace)

    def pod_group(self, key: str) -> PodGroup | None:
        """A PodGroup."""
        return self._one(PodGroup, key)  # type: ignore[return-value]

    def claim(self, key: str) -> api.ResourceClaim | None:
        """A claim."""
        return self._one(api.ResourceClaim, key)  # type: ignore[return-value]

    def template(self, key: str) -> api.ResourceClaimTemplate | None:
        """A template."""
        return self._one(api.ResourceClaimTemplate, key)  # type: ignore[return-value]

    def claims_made_for(self, uid: str) -> Iterator[api.ResourceClaim]:
        """The claims that were created for the pod or PodGroup with that uid."""
        for claim in self._what_if.all(api.ResourceClaim):
            if uid in owner_uids(claim):
                yield claim
