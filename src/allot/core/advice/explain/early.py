"""Causes that the scheduler's filters never see: gates, schedulers that do not exist, claims that cannot be used or made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from allot.core.advice.explain.aftermath import make_claims
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, patch_of
from allot.core.advice.explain.report import Patch, Reason
from allot.core.advice.explain.trial import is_full, known_schedulers
from allot.core.advice.explain.wording import listed, named
from allot.core.advice.explain.world import World, as_json
from allot.core.advice.nearest import nearest
from allot.core.lifecycle.claim_owners import claim_name, group_name, is_made_for, recorded_name
from allot.core.lifecycle.templates import FAILED
from allot.core.model import core_v1, observed_v1
from allot.core.model import resource_v1 as api
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.groups import minimum_of

_QUOTA = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.*), used: (?P<used>.*), limited: (?P<limited>.*)"
)


def before_scheduling(world: World, pod: core_v1.Pod) -> Diagnosis | None:
    """Why the scheduler does not look at a pod; None if it does."""
    metadata, spec = pod.metadata, pod.spec
    if metadata.deletion_timestamp is not None:
        return Diagnosis(reason=Reason.BEING_DELETED, text=f"it is being deleted since {metadata.deletion_timestamp}")
    if spec.scheduling_gates:
        return _gated(pod)
    if spec.scheduler_name not in known_schedulers(world) and not _has_events_of(world, spec.scheduler_name):
        return _no_scheduler(pod)
    for entry in spec.resource_claims:
        found = _claim(world, pod, entry)
        if found is not None:
            return found
    return _group(world, pod)


def events_of(world: World, pod: core_v1.Pod, *reasons: str) -> list[observed_v1.Event]:
    """Events about a pod for some reasons, the newest first."""
    found = [
        event
        for event in world.all(observed_v1.Event)
        if event.reason in reasons
        and event.involved_object.kind == "Pod"
        and event.involved_object.name == pod.metadata.name
        and (event.involved_object.namespace or event.metadata.namespace) == pod.metadata.namespace
        and event.involved_object.uid in ("", pod.metadata.uid)
    ]
    return sorted(found, key=lambda event: event.seen_at, reverse=True)


def _gated(pod: core_v1.Pod) -> Diagnosis:
    names = [gate.name for gate in pod.spec.scheduling_gates]
    text = f"it is held back by {named('scheduling gate', names)}, which whoever set {'it' if len(names) == 1 else 'them'} has to remove"
    remove = patch_of(
        "Pod", pod.metadata.name, {"op": "remove", "path": "/spec/schedulingGates"}, namespace=pod.metadata.namespace
    )
    candidate = Candidate(
        rank=Rank.FIX, text=f"remove {named('scheduling gate', names)} from the pod", patches=(remove,)
    )
    return Diagnosis(reason=Reason.SCHEDULING_GATE, text=text, candidates=(candidate,))


def _has_events_of(world: World, scheduler: str) -> bool:
    return any(event.reporting_component == scheduler for event in world.all(observed_v1.Event))


def _no_scheduler(pod: core_v1.Pod) -> Diagnosis:
    name = pod.spec.scheduler_name
    text = f'its spec.schedulerName is "{name}", and no scheduler of that name has placed or even tried a pod: nobody looks at it'
    change = patch_of(
        "Pod",
        pod.metadata.name,
        {"op": "add", "path": "/spec/schedulerName", "value": "default-scheduler"},
        namespace=pod.metadata.namespace,
        recreate=True,
    )
    return Diagnosis(
        reason=Reason.NO_SUCH_SCHEDULER,
        text=text,
        candidates=(Candidate(rank=Rank.FIX, text="set spec.schedulerName to default-scheduler", patches=(change,)),),
        advice=(f"start scheduler {name}",),
    )


# --- groups ---


def _group(world: World, pod: core_v1.Pod) -> Diagnosis | None:
    name = group_name(pod)
    if not name:
        return None
    namespace = pod.metadata.namespace
    group = world.get(PodGroup, name, namespace)
    if group is None:
        others = [found.metadata.name for found in world.all(PodGroup) if found.metadata.namespace == namespace]
        meant = nearest(name, others)
        hint = f' (did you mean "{meant}"?)' if meant is not None else ""
        return Diagnosis(
            reason=Reason.GROUP_MISSING, text=f"it belongs to PodGroup {namespace}/{name}, which does not exist{hint}"
        )
    members = [
        found for found in world.all(core_v1.Pod) if found.metadata.namespace == namespace and group_name(found) == name
    ]
    minimum = minimum_of(group)
    if len(members) >= minimum:
        return None
    text = f"its PodGroup {namespace}/{name} needs {minimum} pods to start, but only {len(members)} of them exist"
    lower = patch_of(
        "PodGroup",
        name,
        {"op": "replace", "path": "/spec/schedulingPolicy/gang/minCount", "value": len(members)},
        namespace=namespace,
        recreate=True,
    )
    return Diagnosis(
        reason=Reason.GROUP_INCOMPLETE,
        text=text,
        candidates=(Candidate(rank=Rank.FEWER, text=f"lower minCount to {len(members)}", patches=(lower,)),),
        advice=("create the missing pods",),
    )


# --- claims ---


def _claim(world: World, pod: core_v1.Pod, entry: core_v1.PodResourceClaim) -> Diagnosis | None:
    namespace = pod.metadata.namespace
    if entry.resource_claim_name is None:
        recorded = recorded_name(pod, entry)
        claim = world.get(api.ResourceClaim, recorded, namespace) if recorded else None
        if recorded != "" and claim is None:
            return _not_made(world, pod, entry)
        if claim is not None and not is_made_for(pod, claim, accepts_group=True):
            text = f"claim {namespace}/{claim.metadata.name}, which was made for its entry {entry.name}, belongs to somebody else"
            return Diagnosis(reason=Reason.CLAIM_NOT_OWNED, text=text)
    else:
        claim = world.get(api.ResourceClaim, entry.resource_claim_name, namespace)
        if claim is None:
            return _no_claim(world, pod, entry, entry.resource_claim_name)
    if claim is None:
        return None
    if claim.metadata.deletion_timestamp is not None:
        return _being_deleted(claim)
    return _full(pod, claim) if is_full(claim, pod) else None


def _position(pod: core_v1.Pod, entry: core_v1.PodResourceClaim) -> int:
    return [found.name for found in pod.spec.resource_claims].index(entry.name)


def _renamed(
    pod: core_v1.Pod, entry: core_v1.PodResourceClaim, field: str, names: Iterable[str]
) -> Iterator[Candidate]:
    other = "resourceClaimName" if field == "resourceClaimTemplateName" else "resourceClaimTemplateName"
    path = f"/spec/resourceClaims/{_position(pod, entry)}"
    has_other = (
        entry.resource_claim_name if other == "resourceClaimName" else entry.resource_claim_template_name
    ) is not None
    for name in names:
        operations = [{"op": "remove", "path": f"{path}/{other}"}] if has_other else []
        operations.append({"op": "add", "path": f"{path}/{field}", "value": name})
        patch = patch_of("Pod", pod.metadata.name, *operations, namespace=pod.metadata.namespace, recreate=True)
        yield Candidate(rank=Rank.FIX, text=f'name {field} "{name}" in the pod', patches=(patch,))


def _no_claim(world: World, pod: core_v1.Pod, entry: core_v1.PodResourceClaim, name: str) -> Diagnosis:
    namespace = pod.metadata.namespace
    text = f"it needs ResourceClaim {namespace}/{name}, which does not exist"
    candidates: list[Candidate] = []
    if world.get(api.ResourceClaimTemplate, name, namespace) is not None:
        text += " (there is a ResourceClaimTemplate of that name: it belongs into resourceClaimTemplateName)"
        candidates += _renamed(pod, entry, "resourceClaimTemplateName", [name])
    known = [found.metadata.name for found in world.all(api.ResourceClaim) if found.metadata.namespace == namespace]
    meant = nearest(name, known)
    if meant is not None:
        text += f'; did you mean "{meant}"?'
        candidates += _renamed(pod, entry, "resourceClaimName", [meant])
    for found in world.all(api.ResourceClaim):
        if found.metadata.name == name and found.metadata.namespace != namespace:
            text += f"; there is one in namespace {found.metadata.namespace}, but claims cannot be used from other namespaces"
            candidates.append(_created(_claim_object(namespace, name, as_json(found).get("spec", {})), "a copy of it"))
            break
    candidates += [
        _created(_claim_object(namespace, name, spec), f"for 1 device of class {class_}")
        for class_, spec in _one_of_each_class(world)
    ]
    return Diagnosis(reason=Reason.CLAIM_MISSING, text=text, candidates=tuple(candidates))


def _one_of_each_class(world: World) -> Iterator[tuple[str, dict[str, object]]]:
    for class_ in world.all(api.DeviceClass):
        name = class_.metadata.name
        yield name, {"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": name}}]}}


def _claim_object(namespace: str, name: str, spec: object) -> dict[str, object]:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def _template_object(namespace: str, name: str, spec: object) -> dict[str, object]:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def _created(object_: dict[str, object], what: str) -> Candidate:
    metadata = object_["metadata"]
    assert isinstance(metadata, dict)
    text = f"create {object_['kind']} {metadata.get('namespace', '')}/{metadata['name']}, {what}"
    return Candidate(rank=Rank.CREATE, text=text, patches=(Patch(action="create", object=object_),))


def _not_made(world: World, pod: core_v1.Pod, entry: core_v1.PodResourceClaim) -> Diagnosis:
    namespace, name = pod.metadata.namespace, entry.resource_claim_template_name
    if name is None:
        text = f"its entry {entry.name} in spec.resourceClaims names neither a claim nor a template"
        return Diagnosis(reason=Reason.CLAIM_MISSING, text=text)
    template = world.get(api.ResourceClaimTemplate, name, namespace)
    if template is None:
        return _no_template(world, pod, entry, name)
    journal: list[object] = []
    with world.changed((), lambda changed, changes: journal.append(make_claims(changed, pod, changes))):
        told = str(journal[0])
    events = events_of(world, pod, FAILED)
    said = tuple(event.message for event in events[:1])
    if "exceeded quota" in told:
        return _quota(world, pod, template, told, said)
    if "admin-access" in told or any("admin-access" in text or "adminAccess" in text for text in said):
        return _admin_access(world, pod, template, said)
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


def _no_template(world: World, pod: core_v1.Pod, entry: core_v1.PodResourceClaim, name: str) -> Diagnosis:
    namespace = pod.metadata.namespace
    text = f"its claim {entry.name} is to be made from ResourceClaimTemplate {namespace}/{name}, which does not exist"
    candidates: list[Candidate] = []
    templates = world.all(api.ResourceClaimTemplate)
    here = [found.metadata.name for found in templates if found.metadata.namespace == namespace]
    elsewhere = next((found for found in templates if found.metadata.name == name), None)
    meant = nearest(name, here)
    if elsewhere is not None:
        text += f" (there is one in namespace {elsewhere.metadata.namespace}, but templates are only found in the pod's own)"
        spec = as_json(elsewhere).get("spec", {})
        candidates.append(_created(_template_object(namespace, name, spec), "a copy of it"))
    elif meant is not None:
        text += f'; did you mean "{meant}"?'
    if world.get(api.ResourceClaim, name, namespace) is not None:
        text += " (there is a ResourceClaim of that name: it belongs into resourceClaimName)"
        candidates += _renamed(pod, entry, "resourceClaimName", [name])
    if meant is not None:
        candidates += _renamed(pod, entry, "resourceClaimTemplateName", [meant])
    candidates += [
        _created(_template_object(namespace, name, {"spec": spec}), f"for 1 device of class {class_}")
        for class_, spec in _one_of_each_class(world)
    ]
    return Diagnosis(reason=Reason.TEMPLATE_MISSING, text=text, candidates=tuple(candidates))


def _quota(
    world: World, pod: core_v1.Pod, template: api.ResourceClaimTemplate, told: str, said: tuple[str, ...]
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
    quota = world.get(observed_v1.ResourceQuota, name, namespace)
    candidates = []
    if quota is not None:
        operations = []
        for part in found["requested"].split(","):
            resource, _, amount = part.partition("=")
            used, limit = quota.status.used.get(resource), quota.spec.hard.get(resource)
            if used is not None and limit is not None and amount.isdigit():
                path = f"/spec/hard/{resource.replace('~', '~0').replace('/', '~1')}"
                operations.append({"op": "replace", "path": path, "value": str(used.value() + int(amount))})
        if operations:
            values = listed(
                f"{operation['path'].rpartition('/')[2].replace('~1', '/')}={operation['value']}"
                for operation in operations
            )
            patch = patch_of("ResourceQuota", name, *operations, namespace=namespace)
            candidates.append(
                Candidate(rank=Rank.ADMIN, text=f"raise ResourceQuota {namespace}/{name} to {values}", patches=(patch,))
            )
    candidates += _freed_quota(world, pod)
    return Diagnosis(reason=Reason.QUOTA, text=text, details=said, candidates=tuple(candidates))


def _freed_quota(world: World, pod: core_v1.Pod) -> Iterator[Candidate]:
    """Pods of the namespace whose claims count."""
    for other in world.all(core_v1.Pod):
        if other.metadata.namespace == pod.metadata.namespace and other.spec.node_name and other.spec.resource_claims:
            text = f"delete pod {other.metadata.namespace}/{other.metadata.name}, whose claims count against the quota"
            patch = Patch(action="delete", kind="Pod", namespace=other.metadata.namespace, name=other.metadata.name)
            yield Candidate(rank=Rank.GATE, text=text, patches=(patch,))
            return


def _admin_access(
    world: World, pod: core_v1.Pod, template: api.ResourceClaimTemplate, said: tuple[str, ...]
) -> Diagnosis:
    namespace = pod.metadata.namespace
    text = (
        f"ResourceClaimTemplate {namespace}/{template.metadata.name} asks for adminAccess, which is only allowed in namespaces "
        f'with the label {api.ADMIN_ACCESS_LABEL}: "true", and namespace {namespace} has no such label'
    )
    candidates = []
    found = world.get(core_v1.Namespace, namespace)
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
    users = [user.name for user in claim.status.reserved_for]
    why = f", which is still used by {named('pod', users)}" if users else ""
    text = (
        f"ResourceClaim {metadata.namespace}/{metadata.name} is being deleted since {metadata.deletion_timestamp}{why}"
    )
    spec = as_json(claim).get("spec", {})
    patches = [
        Patch(action="delete", kind="Pod", namespace=metadata.namespace, name=user.name)
        for user in claim.status.reserved_for
        if user.resource == "pods"
    ]
    if not patches:
        patches.append(Patch(action="delete", kind="ResourceClaim", namespace=metadata.namespace, name=metadata.name))
    patches.append(Patch(action="create", object=_claim_object(metadata.namespace, metadata.name, spec)))
    first = f"delete {named('pod', users)}" if users else f"remove the finalizers {listed(metadata.finalizers)}"
    candidate = Candidate(
        rank=Rank.OTHERS, text=f"{first}, so that the claim goes, and create it again", patches=tuple(patches)
    )
    return Diagnosis(reason=Reason.CLAIM_BEING_DELETED, text=text, candidates=(candidate,))


def _full(pod: core_v1.Pod, claim: api.ResourceClaim) -> Diagnosis:
    namespace, name = claim.metadata.namespace, claim.metadata.name
    most = api.RESERVED_FOR_MAX
    text = f"ResourceClaim {namespace}/{name} is reserved for {len(claim.status.reserved_for)} users already, and no claim takes more than {most}"
    user = claim.status.reserved_for[0]
    delete = Patch(action="delete", kind="Pod", namespace=namespace, name=user.name)
    position = next(index for index, entry in enumerate(pod.spec.resource_claims) if claim_name(pod, entry) == name)
    new = f"{name}-2"
    spec = as_json(claim).get("spec", {})
    point = patch_of(
        "Pod",
        pod.metadata.name,
        {"op": "replace", "path": f"/spec/resourceClaims/{position}/resourceClaimName", "value": new},
        namespace=namespace,
        recreate=True,
    )
    candidates = (
        Candidate(
            rank=Rank.CREATE,
            text=f"create a second claim, {namespace}/{new}, and name that one in the pod",
            patches=(Patch(action="create", object=_claim_object(namespace, new, spec)), point),
        ),
        Candidate(
            rank=Rank.OTHERS, text=f"delete pod {namespace}/{user.name}, which uses the claim", patches=(delete,)
        ),
    )
    return Diagnosis(reason=Reason.CLAIM_FULL, text=text, candidates=candidates)


__all__ = ["before_scheduling", "events_of"]
