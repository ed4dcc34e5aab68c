"""Creates claims from templates for pods and PodGroups, records their names in the owner's status, and reserves allocated claims
for pods that got a node without the scheduler.

The name of a new claim looks server-generated, but is derived from the owner's uid and the entry: a second attempt, after a crash
or with a stale cache, finds the existing claim instead of creating another. It has the scheduler's finalizer from the start,
which saves the scheduler a write for every pod; `claims` removes it in any state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol

import msgspec
from msgspec.structs import replace

from allot.core.features import FeatureGates
from allot.core.lifecycle.actions import (
    WARNING,
    Action,
    Answers,
    Apply,
    Create,
    Emit,
    LookUp,
    Retry,
    Update,
    resource_of,
)
from allot.core.lifecycle.claim_owners import (
    claim_name,
    consumer_of,
    entry_name,
    group_name,
    is_made_for,
    is_reserved_for,
    key_of,
    recorded_name,
    shared_entry,
)
from allot.core.lifecycle.disruption import is_terminal
from allot.core.model.core_v1 import Pod, PodResourceClaim
from allot.core.model.meta import ObjectMeta, OwnerReference
from allot.core.model.resource_v1 import FINALIZER, POD_CLAIM_NAME_ANNOTATION, ResourceClaim, ResourceClaimTemplate
from allot.core.model.scheduling_v1 import PodGroup, PodGroupResourceClaim

MANAGER = "ResourceClaimController"
FAILED = "FailedResourceClaimCreation"
# Of the 63 characters of a name, the server uses 5 for its suffix; one is for a hyphen.
BASE_LENGTH_MAX = 57
_SERVER_BASE_LENGTH_MAX = 58
_SUFFIX_LENGTH = 5
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_NAMES_MAX = 16

_CLAIMS = resource_of(ResourceClaim)
_ACTION = "CreateResourceClaim"

Entry = PodResourceClaim | PodGroupResourceClaim


class View(Protocol):
    """Known objects. Keys are `namespace/name`."""

    def pod_group(self, key: str) -> PodGroup | None:
        """A PodGroup, if it is known."""

    def claim(self, key: str) -> ResourceClaim | None:
        """A claim, if it is known."""

    def claims_made_for(self, uid: str) -> Iterable[ResourceClaim]:
        """The claims created for the pod or PodGroup with that uid."""

    def template(self, key: str) -> ResourceClaimTemplate | None:
        """A template, if it is known."""


class _Failure(msgspec.Struct, frozen=True):
    """Why an entry has no claim. is_final: retrying is useless."""

    text: str
    is_final: bool = False


# What an entry needs: nothing, a name to record (with the actions that create the claim), a lookup first, or it is unavailable.
_Step = tuple[str, tuple[Action, ...]] | LookUp | _Failure | None


def reconcile_pod(pod: Pod, view: View, answers: Answers, gates: FeatureGates) -> tuple[Action, ...]:
    """Claims for entries of a pod without one, their names in its status, and reservations if it has a node."""
    if not _may_run(pod):
        return ()
    group = _group_of(pod, view, gates)
    if isinstance(group, _Failure):
        return () if group.is_final else (Retry(message=group.text),)
    actions = _generate(pod, group, view, answers, gates)
    if not pod.spec.node_name or any(isinstance(action, LookUp | Retry) for action in actions):
        return actions
    return (*actions, *_reserve(pod, group, view, gates))


def reconcile_pod_group(group: PodGroup, view: View, answers: Answers, gates: FeatureGates) -> tuple[Action, ...]:
    """Claims for entries of a PodGroup without one, and their names in its status."""
    if group.metadata.deletion_timestamp is not None or "DRAWorkloadResourceClaims" not in gates:
        return ()
    return _generate(group, None, view, answers, gates)


def needs_work(owner: Pod | PodGroup, view: View, gates: FeatureGates) -> bool:
    """Whether reconciling a pod or PodGroup could do anything: a cheap check for every observed change."""
    if not _may_run(owner) if isinstance(owner, Pod) else owner.metadata.deletion_timestamp is not None:
        return False
    accepts_group = "DRAWorkloadResourceClaims" in gates
    for entry in owner.spec.resource_claims:
        name = entry.resource_claim_name
        if name is None:
            name = recorded_name(owner, entry)
            if name is None:
                return True
        if not name:
            continue
        claim = view.claim(key_of(owner.metadata.namespace, name))
        if entry.resource_claim_name is None and (
            claim is None or not is_made_for(owner, claim, accepts_group=accepts_group)
        ):
            return True
        if claim is not None and isinstance(owner, Pod) and _lacks_reservation(owner, claim, accepts_group):
            return True
    return False


def _may_run(pod: Pod) -> bool:
    """Whether a pod can still need claims. A finished one must not get claims again that were just released; judging by its code,
    the controller of Kubernetes 1.37 would recreate and release them again.
    """
    return pod.metadata.deletion_timestamp is None and not is_terminal(pod)


# --- claims ---


def _group_of(pod: Pod, view: View, gates: FeatureGates) -> PodGroup | _Failure | None:
    name = group_name(pod)
    if not name:
        return None
    if "GenericWorkload" not in gates:
        return _Failure(f"Pod is a member of PodGroup {name} but GenericWorkload feature is disabled", is_final=True)
    namespace = pod.metadata.namespace
    group = view.pod_group(key_of(namespace, name))
    if group is None:
        absent = f'podgroup.scheduling.k8s.io "{name}" not found'
        return _Failure(f"get PodGroup for Pod {namespace}/{pod.metadata.name}: {absent}")
    return group


def _generate(
    owner: Pod | PodGroup, group: PodGroup | None, view: View, answers: Answers, gates: FeatureGates
) -> tuple[Action, ...]:
    actions: list[Action] = []
    questions: list[Action] = []
    names: dict[str, str] = {}
    for entry in owner.spec.resource_claims:
        step = _step(owner, group, entry, view, answers, gates)
        if isinstance(step, LookUp):
            questions.append(step)
        elif isinstance(step, _Failure):
            # As in Kubernetes: claims created for earlier entries are found and recorded once this one is available.
            return (*questions, *([] if questions else (*actions, *_failed(owner, entry, step))))
        elif step is not None:
            names[entry.name] = step[0]
            actions.extend(step[1])
    if questions:
        return tuple(questions)
    if names:
        actions.append(_record(owner, names))
    return tuple(actions)


def _step(
    owner: Pod | PodGroup, group: PodGroup | None, entry: Entry, view: View, answers: Answers, gates: FeatureGates
) -> _Step:
    if entry.resource_claim_name is not None or entry.resource_claim_template_name is None:
        return None
    recorded = recorded_name(owner, entry)
    if recorded == "":
        return None
    if recorded is not None:
        exists = _exists(owner, recorded, view, answers, accepts_group="DRAWorkloadResourceClaims" in gates)
        if isinstance(exists, LookUp) or exists:
            return exists if isinstance(exists, LookUp) else None
    if group is not None and isinstance(entry, PodResourceClaim) and shared_entry(group, entry) is not None:
        return _shared(group, entry, view, gates)
    made = _made_before(owner, entry, view)
    if made is not None:
        return made.metadata.name, ()
    template_name = entry.resource_claim_template_name
    template = view.template(key_of(owner.metadata.namespace, template_name))
    if template is None:
        absent = f'resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
        return _Failure(f'resource claim template "{template_name}": {absent}')
    return _create(owner, entry, template, recorded or "", view)


def _exists(owner: Pod | PodGroup, name: str, view: View, answers: Answers, *, accepts_group: bool) -> bool | LookUp:
    """Whether the claim recorded for an entry exists and still belongs to its owner."""
    claim = view.claim(key_of(owner.metadata.namespace, name))
    if claim is None:
        question = LookUp(resource=_CLAIMS, name=name, namespace=owner.metadata.namespace)
        if question not in answers:
            return question
        claim = answers[question]
    return claim is not None and is_made_for(owner, claim, accepts_group=accepts_group)


def _shared(group: PodGroup, entry: PodResourceClaim, view: View, gates: FeatureGates) -> _Step:
    """The claim of the pod's group, once the group has it. The pod never creates one."""
    if "DRAWorkloadResourceClaims" not in gates:
        text = f"claim {entry.name} is a PodGroup claim but the DRAWorkloadResourceClaims feature is disabled"
        return _Failure(text, is_final=True)
    made = _made_before(group, entry, view)
    return None if made is None else (made.metadata.name, ())


def _made_before(owner: Pod | PodGroup, entry: Entry, view: View) -> ResourceClaim | None:
    """A claim that was created for an entry, but not recorded: its creator was interrupted."""
    for claim in view.claims_made_for(owner.metadata.uid):
        if claim.metadata.namespace == owner.metadata.namespace and entry_name(claim) == entry.name:
            return claim
    return None


def _create(
    owner: Pod | PodGroup, entry: Entry, template: ResourceClaimTemplate, recorded: str, view: View
) -> tuple[str, tuple[Action, ...]] | _Failure:
    metadata = owner.metadata
    base = generate_name(metadata.name, entry.name)
    for attempt in range(_NAMES_MAX):
        name = _name(base, (metadata.uid, entry.name, recorded, str(attempt)))
        if view.claim(key_of(metadata.namespace, name)) is None:
            break
    else:
        return _Failure(f"create ResourceClaim : no free name that begins with {base!r}")
    is_pod = isinstance(owner, Pod)
    claim = ResourceClaim(
        metadata=ObjectMeta(
            name=name,
            generate_name=base,
            namespace=metadata.namespace,
            finalizers=(FINALIZER,),
            labels=template.spec.metadata.labels,
            annotations={**template.spec.metadata.annotations, POD_CLAIM_NAME_ANNOTATION: entry.name},
            owner_references=(
                OwnerReference(
                    api_version=resource_of(type(owner)).api_version,
                    kind="Pod" if is_pod else "PodGroup",
                    name=metadata.name,
                    uid=metadata.uid,
                    controller=True,
                ),
            ),
        ),
        spec=template.spec.spec,
    )
    told = _event(owner, entry, "create ResourceClaim : ")
    return name, (Create(resource=_CLAIMS, object=claim, namespace=metadata.namespace, on_failure=told),)


def generate_name(owner: str, entry: str) -> str:
    """generateName of the claim for an entry. If too long, both parts are cut in proportion, so that the entry stays
    recognizable.
    """
    whole = f"{owner}-{entry}-"
    length = len(whole)
    if length <= BASE_LENGTH_MAX:
        return whole
    owner = owner[: len(owner) * BASE_LENGTH_MAX // length]
    return f"{owner}-{entry[: len(entry) * BASE_LENGTH_MAX // length]}"


def _name(base: str, seeds: tuple[str, ...]) -> str:
    number = int.from_bytes(hashlib.sha256("\n".join(seeds).encode()).digest()[:8], "big")
    suffix = ""
    for _ in range(_SUFFIX_LENGTH):
        number, digit = divmod(number, len(_SUFFIX_ALPHABET))
        suffix += _SUFFIX_ALPHABET[digit]
    return base[:_SERVER_BASE_LENGTH_MAX] + suffix


# --- status ---


def _record(owner: Pod | PodGroup, names: dict[str, str]) -> Apply:
    """All names, including earlier ones: a manager gives up what it does not repeat."""
    before = {
        status.name: status.resource_claim_name
        for status in owner.status.resource_claim_statuses
        if status.resource_claim_name
    }
    entries = sorted({**before, **names}.items())
    statuses = [{"name": entry, "resourceClaimName": name} for entry, name in entries]
    return Apply(
        resource=resource_of(type(owner)),
        name=owner.metadata.name,
        namespace=owner.metadata.namespace,
        uid=owner.metadata.uid,
        fields={"status": {"resourceClaimStatuses": statuses}},
        manager=MANAGER,
        subresource="status",
    )


def _failed(owner: Pod | PodGroup, entry: Entry, failure: _Failure) -> tuple[Action, ...]:
    event = _event(owner, entry, failure.text)
    return (event,) if failure.is_final else (event, Retry(message=event.note))


def _event(owner: Pod | PodGroup, entry: Entry, text: str) -> Emit:
    word = "PodResourceClaim" if isinstance(owner, Pod) else "PodGroupResourceClaim"
    return Emit(regarding=owner, type=WARNING, reason=FAILED, action=_ACTION, note=f"{word} {entry.name}: {text}")


# --- reservations ---


def _reserve(pod: Pod, group: PodGroup | None, view: View, gates: FeatureGates) -> list[Action]:
    """Reserve allocated claims of a pod that got its node without the scheduler. Nothing is allocated here."""
    accepts_group = "DRAWorkloadResourceClaims" in gates
    writes: dict[str, Action] = {}
    for entry in pod.spec.resource_claims:
        name = claim_name(pod, entry)
        claim = view.claim(key_of(pod.metadata.namespace, name)) if name else None
        if claim is None or not _lacks_reservation(pod, claim, accepts_group):
            continue
        if entry.resource_claim_name is None and not is_made_for(pod, claim, accepts_group=accepts_group):
            continue
        consumer = consumer_of(pod, group, entry)
        if consumer.api_group and not accepts_group:
            continue
        status = replace(claim.status, reserved_for=(*claim.status.reserved_for, consumer))
        writes[name] = Update(resource=_CLAIMS, object=replace(claim, status=status), subresource="status")
    return list(writes.values())


def _lacks_reservation(pod: Pod, claim: ResourceClaim, accepts_group: bool) -> bool:
    """Whether a pod has a node and a claim that is not reserved for it yet. A claim that is being deleted accepts no consumers."""
    return (
        bool(pod.spec.node_name)
        and claim.status.allocation is not None
        and claim.metadata.deletion_timestamp is None
        and not is_reserved_for(pod, claim, accepts_group=accepts_group)
    )
