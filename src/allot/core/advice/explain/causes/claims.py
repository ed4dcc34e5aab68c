"""Claims that a pod cannot use: they are not there, cannot be made, are on their way out, or have too many users."""

from __future__ import annotations

import re
from collections.abc import Iterator

from allot.core.advice.explain.aftermath import make_claims
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, claim_object, delete_of, patch_of, pointer
from allot.core.advice.explain.events import events_of
from allot.core.advice.explain.remedies.holders import second_claim
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import listed, named
from allot.core.advice.nearest import nearest
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import Journal, WhatIfCluster, as_json
from allot.core.lifecycle.claim_owners import is_made_for, recorded_name
from allot.core.lifecycle.templates import FAILED
from allot.core.model import core_v1, observed_v1
from allot.core.model import resource_v1 as api

_QUOTA = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.*), used: (?P<used>.*), limited: (?P<limited>.*)"
)


def unusable(what_if: WhatIfCluster, pod: core_v1.Pod, entry: core_v1.PodResourceClaim) -> Diagnosis | None:
    """Why a pod cannot use one of its claims, before any device is looked for; None if it can."""
    namespace = pod.metadata.namespace
    if entry.resource_claim_name is None:
        recorded = recorded_name(pod, entry)
        claim = what_if.get(api.ResourceClaim, recorded, namespace) if recorded else None
        if recorded != "" and claim is None:
            return _not_made(what_if, pod, entry)
        if claim is not None and not is_made_for(pod, claim, accepts_group=True):
            name = f"{namespace}/{claim.metadata.name}"
            text = f"claim {name}, which was recorded for its entry {entry.name}, belongs to somebody else"
            return Diagnosis(reason=Reason.CLAIM_NOT_OWNED, text=text)
    else:
        claim = what_if.get(api.ResourceClaim, entry.resource_claim_name, namespace)
        if claim is None:
            return _no_claim(what_if, pod, entry, entry.resource_claim_name)
    if claim is None:
        return None
    if claim.metadata.deletion_timestamp is not None:
        return _being_deleted(claim)
    return _full(pod, claim) if len(claim.status.reserved_for) >= api.RESERVED_FOR_MAX else None


def _position(pod: core_v1.Pod, entry: core_v1.PodResourceClaim) -> int:
    return [found.name for found in pod.spec.resource_claims].index(entry.name)


def _renamed(pod: core_v1.Pod, entry: core_v1.PodResourceClaim, field: str, name: str) -> Candidate:
    """Another name in an entry of a pod. field: resourceClaimName or resourceClaimTemplateName; the other one goes."""
    path = f"/spec/resourceClaims/{_position(pod, entry)}"
    given = {
        "resourceClaimName": entry.resource_claim_name,
        "resourceClaimTemplateName": entry.resource_claim_template_name,
    }
    operations = [
        {"op": "remove", "path": f"{path}/{other}"}
        for other, value in given.items()
        if value is not None and other != field
    ]
    operations.append({"op": "add", "path": f"{path}/{field}", "value": name})
    patch = patch_of("Pod", pod.metadata.name, *operations, namespace=pod.metadata.namespace, recreate=True)
    return Candidate(rank=Rank.FIX, text=f'name {field} "{name}" in the pod', patches=(patch,))


def _no_claim(what_if: WhatIfCluster, pod: core_v1.Pod, entry: core_v1.PodResourceClaim, name: str) -> Diagnosis:
    namespace = pod.metadata.namespace
    text = f"it needs ResourceClaim {namespace}/{name}, which does not exist"
    candidates: list[Candidate] = []
    if what_if.get(api.ResourceClaimTemplate, name, namespace) is not None:
        text += " (there is a ResourceClaimTemplate of that name: it belongs into resourceClaimTemplateName)"
        candidates.append(_renamed(pod, entry, "resourceClaimTemplateName", name))
    known = [found.metadata.name for found in what_if.all(api.ResourceClaim) if found.metadata.namespace == namespace]
    meant = nearest(name, known)
    if meant is not None:
        text += f'; did you mean "{meant}"?'
        candidates.append(_renamed(pod, entry, "resourceClaimName", meant))
    for found in what_if.all(api.ResourceClaim):
        if found.metadata.name == name and found.metadata.namespace != namespace:
            text += f"; there is one in namespace {found.metadata.namespace}, but claims cannot be used from other namespaces"
            candidates.append(_created(claim_object(namespace, name, as_json(found).get("spec", {})), "a copy of it"))
            break
    candidates += [
        _created(claim_object(namespace, name, spec), f"for 1 device of class {class_}")
        for class_, spec in _one_of_each_class(what_if)
    ]
    return Diagnosis(reason=Reason.CLAIM_MISSING, text=text, candidates=tuple(candidates))


def _one_of_each_class(what_if: WhatIfCluster) -> Iterator[tuple[str, dict[str, object]]]:
    for class_ in what_if.all(api.DeviceClass):
        name = class_.metadata.name
        yield name, {"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": name}}]}}


def _template_object(namespace: str, name: str, spec: object) -> dict[str, object]:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def _created(object_: dict[str, object], what: str) -> Candidate:
    metadata = object_["metadata"]
    assert isinstance(metadata, dict)
    text = f"create {object_['kind']} {metadata.get('namespace', '')}/{metadata['name']}, {what}"
    return Candidate(rank=Rank.CREATE, text=text, patches=(Patch(action="create", object=object_),))


def _not_made(what_if: WhatIfCluster, pod: core_v1.Pod, entry: core_v1.PodResourceClaim) -> Diagnosis:
    namespace, name = pod.metadata.namespace, entry.resource_claim_template_name
    if name is None:
        text = f"its entry {entry.name} in spec.resourceClaims names neither a claim nor a template"
        return Diagnosis(reason=Reason.CLAIM_MISSING, text=text)
    template = what_if.get(api.ResourceClaimTemplate, name, namespace)
    if template is None:
        return _no_template(what_if, pod, entry, name)
    told = _refusal(what_if, pod)
    events = events_of(what_if, pod, FAILED)
    said = tuple(event.message for event in events[:1])
    if "exceeded quota" in told:
        return _quota(what_if, pod, template, told, said)
    if "admin-access" in told or any("admin-access" in text or "adminAccess" in text for text in said):
        return _admin_access(what_if, pod, template, said)
    if told or said:
        why = told or said[0]
        text = f"its claim {entry.name} could not be made from ResourceClaimTemplate {namespace}/{name}: {why}"
        return Diagnosis(reason=Reason.CLAIM_NOT_CREATED, text=text, details=said)
    text = (
        f"its claim {entry.name} has not been made yet from ResourceClaimTemplate {namespace}/{name}, "
        "which is the resource claim controller's work"
    )
    return Diagnosis(
        reason=Reason.CLAIM_NOT_CREATED, text=text, advice=("see that the controller manager runs", "wait a moment")
    )


def _refusal(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    """What the API server would say if the claims of a pod were made now."""
    told: list[str] = []

    def make(changed: WhatIfCluster, journal: Journal) -> None:
        told.append(make_claims(changed, pod, journal))

    with what_if.changed((), make):
        return told[0]


def _no_template(what_if: WhatIfCluster, pod: core_v1.Pod, entry: core_v1.PodResourceClaim, name: str) -> Diagnosis:
    namespace = pod.metadata.namespace
    recorded = recorded_name(pod, entry)
    text = f"its claim {entry.name} is to be made from ResourceClaimTemplate {namespace}/{name}, which does not exist"
    if recorded:
        text = (
            f"its claim {namespace}/{recorded} is not there, nor is ResourceClaimTemplate {namespace}/{name}, "
            "from which it was made"
        )
    candidates: list[Candidate] = []
    templates = what_if.all(api.ResourceClaimTemplate)
    here = [found.metadata.name for found in templates if found.metadata.namespace == namespace]
    elsewhere = next((found for found in templates if found.metadata.name == name), None)
    meant = nearest(name, here)
    if elsewhere is not None:
        text += f" (there is one in namespace {elsewhere.metadata.namespace}, but templates are only found in the pod's own)"
        spec = as_json(elsewhere).get("spec", {})
        candidates.append(_created(_template_object(namespace, name, spec), "a copy of it"))
    elif meant is not None:
        text += f'; did you mean "{meant}"?'
    if what_if.get(api.ResourceClaim, name, namespace) is not None:
        text += " (there is a ResourceClaim of that name: it belongs into resourceClaimName)"
        candidates.append(_renamed(pod, entry, "resourceClaimName", name))
    if meant is not None:
        candidates.append(_renamed(pod, entry, "resourceClaimTemplateName", meant))
    candidates += [
        _created(_template_object(namespace, name, {"spec": spec}), f"for 1 device of class {class_}")
        for class_, spec in _one_of_each_class(what_if)
    ]
    return Diagnosis(reason=Reason.TEMPLATE_MISSING, text=text, candidates=tuple(candidates))


def _quota(
    what_if: WhatIfCluster, pod: core_v1.Pod, template: api.ResourceClaimTemplate, told: str, said: tuple[str, ...]
) -> Diagnosis:
    namespace = pod.metadata.namespace
    found = _QUOTA.search(told)
    if found is None:
        return Diagnosis(reason=Reason.QUOTA, text=f"its claim may not be made: {told}", details=said)
    name = found["quota"]
    text = (
        f"ResourceQuota {namespace}/{name} does not allow the claim that is to be made from ResourceClaimTemplate "
        f"{template.metadata.name}: requested {found['requested']}, used {found['used']}, limited to {found['limited']}"
    )
    quota = what_if.get(observed_v1.ResourceQuota, name, namespace)
    candidates = [*_raised(quota, found["requested"]), *_freed_quota(what_if, pod)] if quota is not None else []
    return Diagnosis(reason=Reason.QUOTA, text=text, details=said, candidates=tuple(candidates))


def _raised(quota: observed_v1.ResourceQuota, requested: str) -> Iterator[Candidate]:
    """The quota with room for what was requested."""
    limits: dict[str, str] = {}
    for part in requested.split(","):
        resource, _, amount = part.partition("=")
        used = quota.status.used.get(resource)
        if used is not None and resource in quota.spec.hard and amount.isdigit():
            limits[resource] = str(used.value() + int(amount))
    if limits:
        namespace, name = quota.metadata.namespace, quota.metadata.name
        operations = [
            {"op": "replace", "path": f"/spec/hard/{pointer(resource)}", "value": limit}
            for resource, limit in limits.items()
        ]
        shown = listed(f"{resource}={limit}" for resource, limit in limits.items())
        yield Candidate(
            rank=Rank.ADMIN,
            text=f"raise ResourceQuota {namespace}/{name} to {shown}",
            patches=(patch_of("ResourceQuota", name, *operations, namespace=namespace),),
        )


def _freed_quota(what_if: WhatIfCluster, pod: core_v1.Pod) -> Iterator[Candidate]:
    """Pods of the namespace whose claims count."""
    for other in what_if.all(core_v1.Pod):
        if other.metadata.namespace == pod.metadata.namespace and other.spec.node_name and other.spec.resource_claims:
            text = f"delete pod {other.metadata.namespace}/{other.metadata.name}, whose claims count against the quota"
            patch = delete_of("Pod", other.metadata.name, other.metadata.namespace)
            yield Candidate(rank=Rank.GATE, text=text, patches=(patch,))
            return


def _admin_access(
    what_if: WhatIfCluster, pod: core_v1.Pod, template: api.ResourceClaimTemplate, said: tuple[str, ...]
) -> Diagnosis:
    namespace = pod.metadata.namespace
    text = (
        f"ResourceClaimTemplate {namespace}/{template.metadata.name} asks for adminAccess, which is only allowed in namespaces "
        f'with the label {api.ADMIN_ACCESS_LABEL}: "true", and namespace {namespace} has no such label'
    )
    candidates = []
    found = what_if.get(core_v1.Namespace, namespace)
    if found is not None:
        labels = {**found.metadata.labels, api.ADMIN_ACCESS_LABEL: "true"}
        patch = patch_of("Namespace", namespace, {"op": "add", "path": "/metadata/labels", "value": labels})
        label = f"label namespace {namespace} with {api.ADMIN_ACCESS_LABEL}=true"
        candidates.append(Candidate(rank=Rank.FIX, text=label, patches=(patch,)))
    operations = [
        {"op": "remove", "path": f"/spec/spec/devices/requests/{index}/exactly/adminAccess"}
        for index, request in enumerate(template.spec.spec.devices.requests)
        if request.exactly is not None and request.exactly.admin_access is not None
    ]
    if operations:
        patch = patch_of("ResourceClaimTemplate", template.metadata.name, *operations, namespace=namespace)
        candidates.append(Candidate(rank=Rank.RELAX, text="do without adminAccess", patches=(patch,)))
    return Diagnosis(reason=Reason.ADMIN_ACCESS, text=text, details=said, candidates=tuple(candidates))


def _being_deleted(claim: api.ResourceClaim) -> Diagnosis:
    metadata = claim.metadata
    namespace, name = metadata.namespace, metadata.name
    users = [user.name for user in claim.status.reserved_for if user.resource == "pods"]
    why = f" and still used by {named('pod', users)}" if users else ""
    text = f"ResourceClaim {namespace}/{name} is being deleted since {metadata.deletion_timestamp}{why}"
    gone = [delete_of("Pod", user, namespace) for user in users] or [delete_of("ResourceClaim", name, namespace)]
    again = Patch(action="create", object=claim_object(namespace, name, as_json(claim).get("spec", {})))
    first = f"delete {named('pod', users)}" if users else f"remove the finalizers {listed(metadata.finalizers)}"
    candidate = Candidate(
        rank=Rank.OTHERS, text=f"{first}, so that the claim goes, and create it again", patches=(*gone, again)
    )
    return Diagnosis(reason=Reason.CLAIM_BEING_DELETED, text=text, candidates=(candidate,))


def _full(pod: core_v1.Pod, claim: api.ResourceClaim) -> Diagnosis:
    namespace, name = claim.metadata.namespace, claim.metadata.name
    users = claim.status.reserved_for
    text = (
        f"ResourceClaim {namespace}/{name} is reserved for {len(users)} users already, and no claim takes more than "
        f"{api.RESERVED_FOR_MAX}"
    )
    first = users[0].name
    fewer = Candidate(
        rank=Rank.OTHERS,
        text=f"delete pod {namespace}/{first}, which uses the claim",
        patches=(delete_of("Pod", first, namespace),),
    )
    return Diagnosis(reason=Reason.CLAIM_FULL, text=text, candidates=(*second_claim(pod, claim), fewer))
