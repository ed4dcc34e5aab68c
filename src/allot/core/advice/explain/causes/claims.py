"""Claims that a pod cannot use: missing, impossible to create, being deleted, or with too many users."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from allot.core.advice.explain.aftermath import make_claims
from allot.core.advice.explain.causes.components import CONTROLLERS, down
from allot.core.advice.explain.devices import expected_drivers
from allot.core.advice.explain.diagnosis import (
    Candidate,
    Diagnosis,
    Rank,
    claim_object,
    delete_of,
    patch_of,
    pointer,
    template_object,
)
from allot.core.advice.explain.events import events_of
from allot.core.advice.explain.holding import are_siblings, ends_by_itself
from allot.core.advice.explain.remedies.holders import second_claim
from allot.core.advice.explain.remedies.templates import workload_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.trial import pod_subject, would_help
from allot.core.advice.explain.wording import joined, listed, named
from allot.core.advice.nearest import nearest
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import Journal, WhatIfCluster, as_json, full_name
from allot.core.lifecycle.claim_owners import claim_name, is_made_for, recorded_name
from allot.core.lifecycle.templates import FAILED
from allot.core.model import core_v1, observed_v1
from allot.core.model import resource_v1 as api
from allot.core.model.classic import GATE, controller_of
from allot.core.quota.claims import ALL_DEVICES, PER_CLASS_SUFFIX, claim_usage, device_classes

QUOTA = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.*), used: (?P<used>.*), limited: (?P<limited>.*)"
)
# Classes whose claims come from templates that NVIDIA's controller creates.
_COMPUTE_DOMAIN = "compute-domain"
# Refusals that can be checked again here.
_RECHECKED = re.compile(r"exceeded quota|admin-access|adminAccess")


def unusable(what_if: WhatIfCluster, pod: core_v1.Pod, entry: core_v1.PodResourceClaim) -> Diagnosis | None:
    """Why a pod cannot use one of its claims, before any search for devices; None if it can."""
    namespace = pod.metadata.namespace
    if entry.resource_claim_name is None:
        recorded = recorded_name(pod, entry)
        claim = what_if.get(api.ResourceClaim, recorded, namespace) if recorded else None
        if recorded != "" and claim is None:
            return _not_made(what_if, pod, entry)
        if claim is not None and not is_made_for(pod, claim, accepts_group=True):
            return _of_another(what_if, pod, entry, claim)
    else:
        claim = what_if.get(api.ResourceClaim, entry.resource_claim_name, namespace)
        if claim is None:
            return _no_claim(what_if, pod, entry, entry.resource_claim_name)
    if claim is None:
        return None
    if claim.metadata.deletion_timestamp is not None:
        return _being_deleted(pod, claim)
    if controller_of(claim) and claim.status.allocation is None:
        return _awaits_controller(pod, claim)
    return _full(what_if, pod, claim) if len(claim.status.reserved_for) >= api.RESERVED_FOR_MAX else None


def _position(pod: core_v1.Pod, entry: core_v1.PodResourceClaim) -> int:
    return [found.name for found in pod.spec.resource_claims].index(entry.name)


def renamed(pod: core_v1.Pod, entry: core_v1.PodResourceClaim, field: str, name: str) -> Candidate:
    """Another name in an entry of a pod. field: resourceClaimName or resourceClaimTemplateName; the other one is removed."""
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
    return Candidate(rank=Rank.FIX, text=f"set {field}: {name} in the pod", patches=(patch,))


def _no_claim(what_if: WhatIfCluster, pod: core_v1.Pod, entry: core_v1.PodResourceClaim, name: str) -> Diagnosis:
    namespace = pod.metadata.namespace
    text = f"it needs ResourceClaim {namespace}/{name}, which does not exist"
    candidates: list[Candidate] = []
    if what_if.get(api.ResourceClaimTemplate, name, namespace) is not None:
        text += " (there is a ResourceClaimTemplate of that name: it belongs in resourceClaimTemplateName)"
        candidates.append(renamed(pod, entry, "resourceClaimTemplateName", name))
    known = [found.metadata.name for found in what_if.all(api.ResourceClaim) if found.metadata.namespace == namespace]
    meant = nearest(name, known)
    if meant is not None:
        text += f'; did you mean "{meant}"?'
        candidates.append(renamed(pod, entry, "resourceClaimName", meant))
    for found in what_if.all(api.ResourceClaim):
        if found.metadata.name == name and found.metadata.namespace != namespace:
            text += f"; there is one in namespace {found.metadata.namespace}, but claims cannot be used from other namespaces"
            spec = as_json(found).get("spec", {})
            candidates.append(_copied(claim_object(namespace, name, spec), found.metadata.namespace))
            break
    candidates += [
        _created(claim_object(namespace, name, spec), f"for 1 device of class {class_}")
        for class_, spec in _one_of_each_class(what_if)
    ]
    return Diagnosis(reason=Reason.CLAIM_MISSING, text=text, candidates=tuple(candidates))


def _one_of_each_class(what_if: WhatIfCluster) -> Iterator[tuple[str, dict[str, object]]]:
    for class_ in what_if.all(api.DeviceClass):
        name = class_.metadata.name
        if name.startswith(_COMPUTE_DOMAIN):
            continue
        yield name, {"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": name}}]}}


def _created(object_: dict[str, object], what: str) -> Candidate:
    metadata = object_["metadata"]
    assert isinstance(metadata, dict)
    text = f"create {object_['kind']} {metadata.get('namespace', '')}/{metadata['name']}, {what}"
    return Candidate(rank=Rank.CREATE, text=text, patches=(Patch(action="create", object=object_),))


def _copied(object_: dict[str, object], source: str) -> Candidate:
    """An object that exists in another namespace."""
    metadata = object_["metadata"]
    assert isinstance(metadata, dict)
    text = f"copy {object_['kind']} {source}/{metadata['name']} to namespace {metadata['namespace']}"
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
        return _quota(what_if, pod, template, told)
    if "admin-access" in told:
        return _admin_access(what_if, pod, template)
    if not told and any(_RECHECKED.search(text) for text in said):
        return _refused_before(what_if, pod, entry, said[0])
    if told or said:
        why = told or said[0].removeprefix(f"PodResourceClaim {entry.name}: ")
        text = f"its claim {entry.name} could not be created from ResourceClaimTemplate {namespace}/{name}: {why}"
        return Diagnosis(reason=Reason.CLAIM_NOT_CREATED, text=text, details=said if told else ())
    idle = down(what_if, CONTROLLERS)
    if idle is not None:
        text = (
            f"{CONTROLLERS} {idle.text}; so its claim {entry.name} has not been created from ResourceClaimTemplate {namespace}/{name}"
            f"{_then(what_if, pod)}"
        )
        return Diagnosis(reason=Reason.COMPONENT_DOWN, text=text, advice=(idle.advice,))
    text = (
        f"the resource claim controller has not created its claim {entry.name} from ResourceClaimTemplate {namespace}/{name} "
        f"yet{_then(what_if, pod)}"
    )
    return Diagnosis(
        reason=Reason.CLAIM_NOT_CREATED, text=text, advice=("check that the controller manager runs", "wait a moment")
    )


def _refused_before(what_if: WhatIfCluster, pod: core_v1.Pod, entry: core_v1.PodResourceClaim, said: str) -> Diagnosis:
    """A refusal that no longer applies: the controller retries by itself."""
    found = QUOTA.search(said)
    what = f"ResourceQuota {found['quota']}" if found is not None else "the API server"
    text = (
        f"its claim {entry.name} has not been created again since {what} refused it; nothing refuses it now"
        f"{_then(what_if, pod)}"
    )
    advice = ("wait a moment: the resource claim controller retries automatically",)
    return Diagnosis(reason=Reason.CLAIM_NOT_CREATED, text=text, advice=advice)


def _then(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    """Where a pod would be placed if its claims were created; empty if nowhere."""
    subject = pod_subject(pod)
    outcome = would_help(what_if, subject, ())
    if outcome is None or not outcome.schedulable:
        return ""
    return f", and with its claims the pod would be placed on node {outcome.node_of(subject)}"


def _refusal(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    """What the API server would say if the claims of a pod were created now."""
    told: list[str] = []

    def make(changed: WhatIfCluster, journal: Journal) -> None:
        told.append(make_claims(changed, pod, journal))

    with what_if.changed((), make):
        return told[0]


def _no_template(what_if: WhatIfCluster, pod: core_v1.Pod, entry: core_v1.PodResourceClaim, name: str) -> Diagnosis:
    namespace = pod.metadata.namespace
    recorded = recorded_name(pod, entry)
    text = f"its claim {entry.name} needs ResourceClaimTemplate {namespace}/{name}, which does not exist"
    if recorded:
        text = (
            f"its claim {namespace}/{recorded} does not exist, nor does ResourceClaimTemplate {namespace}/{name}, "
            "from which it was created"
        )
    candidates: list[Candidate] = []
    templates = what_if.all(api.ResourceClaimTemplate)
    here = [found.metadata.name for found in templates if found.metadata.namespace == namespace]
    elsewhere = next((found for found in templates if found.metadata.name == name), None)
    meant = nearest(name, here)
    if elsewhere is not None:
        text += f" (there is one in namespace {elsewhere.metadata.namespace}, but a pod can only use templates of its own namespace)"
        spec = as_json(elsewhere).get("spec", {})
        # The name is the one that is meant: it comes before another that is like it.
        copy = _copied(template_object(namespace, name, spec), elsewhere.metadata.namespace)
        candidates.append(replace(copy, rank=Rank.FIX))
    elif meant is not None:
        text += f'; did you mean "{meant}"?'
    if what_if.get(api.ResourceClaim, name, namespace) is not None:
        text += " (there is a ResourceClaim of that name: it belongs in resourceClaimName)"
        candidates.append(renamed(pod, entry, "resourceClaimName", name))
    if meant is not None:
        candidates.append(renamed(pod, entry, "resourceClaimTemplateName", meant))
    candidates += [
        _created(template_object(namespace, name, {"spec": spec}), f"for 1 device of class {class_}")
        for class_, spec in _one_of_each_class(what_if)
    ]
    domains = any(each.metadata.name.startswith(_COMPUTE_DOMAIN) for each in what_if.all(api.DeviceClass))
    advice = (
        "if a ComputeDomain names it, its controller creates it: check that the ComputeDomain exists, and the controller's log",
    )
    return Diagnosis(
        reason=Reason.TEMPLATE_MISSING, text=text, candidates=tuple(candidates), advice=advice if domains else ()
    )


def _quota(what_if: WhatIfCluster, pod: core_v1.Pod, template: api.ResourceClaimTemplate, told: str) -> Diagnosis:
    namespace = pod.metadata.namespace
    found = QUOTA.search(told)
    if found is None:
        return Diagnosis(reason=Reason.QUOTA, text=f"its claim cannot be created: {told}")
    name = found["quota"]
    text = (
        f"ResourceQuota {namespace}/{name} does not allow its claim from ResourceClaimTemplate "
        f"{template.metadata.name}: {_amounts(found['requested'], found['used'], found['limited'])}"
    )
    quota = what_if.get(observed_v1.ResourceQuota, name, namespace)
    greedy = [
        (index, request.name)
        for index, request in enumerate(template.spec.spec.devices.requests)
        if request.exactly is not None and request.exactly.allocation_mode == api.ALL
    ]
    if greedy:
        text += f": request {greedy[0][1]} asks for all devices (allocationMode: All), which counts as {ALL_DEVICES}"
    charged = _charged(template, quota, found["requested"]) if quota is not None else None
    if charged is not None:
        text += f"; {charged.text}"
    forgotten = _forgotten(what_if, pod, found["requested"]) if quota is not None else []
    if forgotten:
        text += f", {joined([f'{number} of them for ResourceClaim {full_name(claim)}, which no pod uses' for claim, number in forgotten[:2]])}"
    candidates = (
        [
            *_given_up(quota, found["requested"], forgotten),
            *(_counted(what_if, template, greedy[0]) if greedy else ()),
            *_raised(quota, found["requested"]),
            *_without(template, charged),
            *_freed_quota(what_if, pod),
        ]
        if quota is not None
        else []
    )
    return Diagnosis(reason=Reason.QUOTA, text=text, candidates=tuple(candidates))


class _Charged(NamedTuple):
    """Alternatives of a request that a quota does not allow. text: phrased to follow a semicolon."""

    text: str
    request: int
    alternatives: tuple[int, ...]


def _charged(template: api.ResourceClaimTemplate, quota: observed_v1.ResourceQuota, requested: str) -> _Charged | None:
    """The alternatives (firstAvailable) that a claim is charged for although it may get another one; None if there are none."""
    resource = requested.partition("=")[0]
    hard, used = quota.spec.hard.get(resource), quota.status.used.get(resource)
    if not resource.endswith(PER_CLASS_SUFFIX) or "," in requested or hard is None:
        return None
    class_ = resource.removesuffix(PER_CLASS_SUFFIX)
    left = hard.value() - (used.value() if used is not None else 0)
    for index, request in enumerate(template.spec.spec.devices.requests):
        over = [
            at
            for at, each in enumerate(request.first_available)
            if each.device_class_name == class_ and (each.allocation_mode == api.ALL or each.count > left)
        ]
        # Without another one, all that it may get is too much.
        if not over or len(over) == len(request.first_available):
            continue
        names = named("alternative", [request.first_available[at].name for at in over])
        others = {each.device_class_name for each in request.first_available} - {class_}
        rule = (
            "every class in its firstAvailable list" if others else "the largest alternative in its firstAvailable list"
        )
        text = f"request {request.name} is charged for {rule}, whichever it gets, so {names} {'counts' if len(over) == 1 else 'count'}, too"
        return _Charged(text, index, tuple(over))
    return None


def _without(template: api.ResourceClaimTemplate, charged: _Charged | None) -> Iterator[Candidate]:
    """A request without the alternatives that the quota does not allow."""
    if charged is None:
        return
    request = template.spec.spec.devices.requests[charged.request]
    path = f"/spec/spec/devices/requests/{charged.request}/firstAvailable"
    operations = [{"op": "remove", "path": f"{path}/{at}"} for at in reversed(charged.alternatives)]
    metadata = template.metadata
    names = named("alternative", [request.first_available[at].name for at in charged.alternatives])
    yield Candidate(
        rank=Rank.ADMIN,
        text=f"remove {names} from request {request.name} of ResourceClaimTemplate {full_name(template)}",
        patches=(patch_of("ResourceClaimTemplate", metadata.name, *operations, namespace=metadata.namespace),),
    )


def _forgotten(what_if: WhatIfCluster, pod: core_v1.Pod, requested: str) -> list[tuple[api.ResourceClaim, int]]:
    """Claims of the pod's namespace that count although no pod names them, those that count for most first; and for how much."""
    resource, namespace = requested.partition("=")[0], pod.metadata.namespace
    named_by = {
        name
        for each in what_if.all(core_v1.Pod)
        if each.metadata.namespace == namespace
        for entry in each.spec.resource_claims
        if (name := claim_name(each, entry)) is not None
    }
    classes = device_classes([as_json(each) for each in what_if.all(api.DeviceClass)])
    found = []
    for claim in what_if.all(api.ResourceClaim):
        metadata = claim.metadata
        if metadata.namespace != namespace or metadata.name in named_by or claim.status.reserved_for:
            continue
        if metadata.owner_references or metadata.deletion_timestamp is not None:
            continue
        amount = claim_usage(as_json(claim), classes, None, "").get(resource)
        if amount is not None and amount.nano > 0:
            found.append((claim, amount.value()))
    return sorted(found, key=lambda each: (-each[1], each[0].metadata.name))


def _given_up(
    quota: observed_v1.ResourceQuota, requested: str, forgotten: Sequence[tuple[api.ResourceClaim, int]]
) -> Iterator[Candidate]:
    """A claim that no one uses goes, and with it what it counts for, as the quota's controller then says."""
    resource = requested.partition("=")[0]
    used = quota.status.used.get(resource)
    for claim, number in forgotten if used is not None else ():
        assert used is not None
        rest = {"op": "replace", "path": f"/status/used/{pointer(resource)}", "value": str(used.value() - number)}
        yield Candidate(
            rank=Rank.NODE,
            text=f"delete ResourceClaim {full_name(claim)}, which no pod uses",
            patches=(
                delete_of("ResourceClaim", claim.metadata.name, claim.metadata.namespace),
                patch_of("ResourceQuota", quota.metadata.name, rest, namespace=quota.metadata.namespace),
            ),
        )


def _counted(
    what_if: WhatIfCluster, template: api.ResourceClaimTemplate, greedy: tuple[int, str]
) -> Iterator[Candidate]:
    """A count of as many devices as the best node has, instead of all."""
    index, name = greedy
    metadata, requests = template.metadata, template.spec.spec.devices.requests
    exactly = requests[index].exactly
    class_ = what_if.get(api.DeviceClass, exactly.device_class_name if exactly is not None else "")
    drivers = expected_drivers(class_)
    there: dict[str, int] = {}
    for slice_ in what_if.all(api.ResourceSlice):
        if slice_.spec.node_name and (not drivers or slice_.spec.driver in drivers):
            there[slice_.spec.node_name] = there.get(slice_.spec.node_name, 0) + len(slice_.spec.devices or ())
    many = max(there.values(), default=0)
    if many:
        path = f"/spec/spec/devices/requests/{index}/exactly"
        patch = patch_of(
            "ResourceClaimTemplate",
            metadata.name,
            {"op": "replace", "path": f"{path}/allocationMode", "value": api.EXACT_COUNT},
            {"op": "add", "path": f"{path}/count", "value": many},
            namespace=metadata.namespace,
        )
        text = f"ask for count: {many} instead of all in request {name} of ResourceClaimTemplate {full_name(template)}"
        yield Candidate(rank=Rank.FIX, text=text, patches=(patch,))


def _amounts(requested: str, used: str, limited: str) -> str:
    """A quota's numbers: for one resource with its name once, for several as the server writes them."""
    (name, _, asked), (_, _, has), (_, _, hard) = (part.partition("=") for part in (requested, used, limited))
    if "," in requested:
        return f"requested {requested}, used {used}, limited to {limited}"
    return f"it needs {asked} {name}, {hard} {'is' if hard == '1' else 'are'} allowed and {has} in use"


def _raised(quota: observed_v1.ResourceQuota, requested: str) -> Iterator[Candidate]:
    """The quota with room for what was requested."""
    limits: dict[str, str] = {}
    for part in requested.split(","):
        resource, _, amount = part.partition("=")
        used = quota.status.used.get(resource)
        if used is not None and resource in quota.spec.hard and amount.isdecimal():
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


def _admin_access(what_if: WhatIfCluster, pod: core_v1.Pod, template: api.ResourceClaimTemplate) -> Diagnosis:
    namespace = pod.metadata.namespace
    found = what_if.get(core_v1.Namespace, namespace)
    value = found.metadata.labels.get(api.ADMIN_ACCESS_LABEL) if found is not None else None
    labels = found.metadata.labels if found is not None else {}
    near = next((key for key in labels if key.rpartition("/")[2] == api.ADMIN_ACCESS_LABEL.rpartition("/")[2]), "")
    has = "has no such label" + (f" (it has {near}, which does not count)" if near else "")
    has = has if value is None else f'has it set to "{value}"'
    text = (
        f"ResourceClaimTemplate {namespace}/{template.metadata.name} asks for adminAccess, which is only allowed in namespaces "
        f'with the label {api.ADMIN_ACCESS_LABEL}: "true", and namespace {namespace} {has}'
    )
    candidates = []
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
        candidates.append(Candidate(rank=Rank.RELAX, text="drop adminAccess", patches=(patch,)))
    return Diagnosis(reason=Reason.ADMIN_ACCESS, text=text, candidates=tuple(candidates))


def _of_another(
    what_if: WhatIfCluster, pod: core_v1.Pod, entry: core_v1.PodResourceClaim, claim: api.ResourceClaim
) -> Diagnosis:
    namespace, name = claim.metadata.namespace, claim.metadata.name
    owner = next((each for each in claim.metadata.owner_references if each.controller), None)
    whose = "has no owner" if owner is None else f"belongs to {owner.kind} {owner.name}"
    if owner is not None and (owner.kind, owner.name) == ("Pod", pod.metadata.name):
        whose = "belongs to an earlier pod of the same name"
    text = f"claim {namespace}/{name}, recorded for its entry {entry.name}, {whose}"
    text += "; the resource claim controller creates another one" + _then(what_if, pod)
    advice = ("check that the controller manager runs, and what its log says about the pod",)
    return Diagnosis(reason=Reason.CLAIM_NOT_OWNED, text=text, advice=advice)


def _being_deleted(pod: core_v1.Pod, claim: api.ResourceClaim) -> Diagnosis:
    metadata = claim.metadata
    namespace, name = metadata.namespace, metadata.name
    users = [user.name for user in claim.status.reserved_for if user.resource == "pods"]
    why = f" and is still used by {named('pod', users)}" if users else ""
    text = f"ResourceClaim {namespace}/{name} was deleted at {metadata.deletion_timestamp}{why}"
    gone = [delete_of("Pod", user, namespace) for user in users] or [delete_of("ResourceClaim", name, namespace)]
    again = Patch(action="create", object=claim_object(namespace, name, as_json(claim).get("spec", {})))
    ends = f"delete {named('pod', users)}, or wait until {'it ends' if len(users) == 1 else 'they end'}"
    first = ends if users else f"remove the finalizers {listed(metadata.finalizers)}"
    candidate = Candidate(
        rank=Rank.OTHERS, text=f"{first}, and create the claim again when it is gone", patches=(*gone, again)
    )
    # An unused claim disappears with its finalizer, which frees its name.
    second = second_claim(pod, claim) if users else ()
    return Diagnosis(reason=Reason.CLAIM_BEING_DELETED, text=text, candidates=(*second, candidate))


def _awaits_controller(pod: core_v1.Pod, claim: api.ResourceClaim) -> Diagnosis:
    controller, namespace = controller_of(claim), pod.metadata.namespace
    text = f"ResourceClaim {full_name(claim)} must be allocated by controller {controller}, which has not done so yet"
    advice = (
        f"check that controller {controller} runs, and its log; PodSchedulingContext {namespace}/{pod.metadata.name} shows "
        "which nodes it rejects",
        f"the API server and the scheduler support this only with feature gate {GATE}",
    )
    return Diagnosis(reason=Reason.CLAIM_CONTROLLER, text=text, advice=advice)


def _full(what_if: WhatIfCluster, pod: core_v1.Pod, claim: api.ResourceClaim) -> Diagnosis:
    namespace, name = claim.metadata.namespace, claim.metadata.name
    users = claim.status.reserved_for
    most = api.RESERVED_FOR_MAX
    text = (
        f"ResourceClaim {namespace}/{name} is already reserved for {len(users)} pods, and a claim allows at most {most}"
    )
    there = [found for each in users if (found := what_if.get(core_v1.Pod, each.name, namespace)) is not None]
    first = users[0].name
    gone = (delete_of("Pod", first, namespace),)
    if not are_siblings(pod, there):
        ends = f"delete one of these pods, such as {namespace}/{first}, or wait until one ends"
        fewer = Candidate(rank=Rank.OTHERS, text=ends, patches=gone)
        return Diagnosis(reason=Reason.CLAIM_FULL, text=text, candidates=(*second_claim(pod, claim), fewer))
    # A second claim in the same workload would be full as well.
    owner = workload_of(what_if, pod)
    field = "parallelism" if ends_by_itself(pod) else "replicas"
    halves = f"run the pods of {owner} beyond {most} as a second {owner.partition(' ')[0]} with a claim of its own, such as {namespace}/{name}-2"
    split = [replace(each, text=halves) for each in second_claim(pod, claim)]
    less = f"set {field}: {most} in {owner}"
    if not ends_by_itself(pod):
        return Diagnosis(
            reason=Reason.CLAIM_FULL, text=f"{text}: {owner} has more", candidates=tuple(split), advice=(less,)
        )
    ends = f"wait until one of these pods ends, and {less}, as no more of them can run at once"
    wait = Candidate(rank=Rank.FIX, text=ends, patches=gone)
    return Diagnosis(reason=Reason.CLAIM_FULL, text=f"{text}: {owner} runs more at once", candidates=(wait, *split))
