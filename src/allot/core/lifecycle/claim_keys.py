"""Which claims, pods and PodGroups a change of one of them, or of a template, affects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from allot.core.features import FeatureGates
from allot.core.lifecycle import claims, templates
from allot.core.lifecycle.claim_owners import claim_keys, extended_claim_name, is_done, key_of
from allot.core.model.core_v1 import Pod
from allot.core.model.resource_v1 import ResourceClaim
from allot.core.model.scheduling_v1 import PodGroup

# What to check (POD, POD_GROUP, CLAIM), and its `namespace/name`.
Key = tuple[str, str]
POD = "pod"
POD_GROUP = "podgroup"
CLAIM = "claim"


class View(templates.View, claims.Consumers, Protocol):
    """Known objects, with indexes from an object to its dependents."""

    def pods_using(self, claim_key: str) -> Iterable[Pod]:
        """The pods that name a claim or have it recorded."""

    def pod_groups_using(self, claim_key: str) -> Iterable[PodGroup]:
        """The PodGroups that name a claim or have it recorded."""

    def members(self, group_key: str) -> Iterable[Pod]:
        """The pods of a PodGroup."""


def keys_of_pod(pod: Pod, view: View, gates: FeatureGates, *, is_deleted: bool = False) -> Iterator[Key]:
    """After a pod change: its claims if it no longer needs them, else the pod if it needs work."""
    extended = extended_claim_name(pod)
    if not pod.spec.resource_claims and not extended:
        return
    if is_deleted or is_done(pod):
        names = [*claim_keys(pod), *([key_of(pod.metadata.namespace, extended)] if extended else [])]
        # Including those created for it: its status lacks one if the creator was interrupted.
        names += [
            key_of(claim.metadata.namespace, claim.metadata.name) for claim in view.claims_made_for(pod.metadata.uid)
        ]
        for key in dict.fromkeys(names):
            yield CLAIM, key
    elif templates.needs_work(pod, view, gates):
        yield POD, key_of(pod.metadata.namespace, pod.metadata.name)


def keys_of_pod_group(group: PodGroup, view: View, gates: FeatureGates, *, is_deleted: bool = False) -> Iterator[Key]:
    """After a PodGroup change: its claims if it is gone, else the group and the pods that wait for it.

    Pods wait for their group even if it has no claims: only then is it clear that all their claims are their own.
    """
    key = key_of(group.metadata.namespace, group.metadata.name)
    if is_deleted:
        for claim_key in claim_keys(group):
            yield CLAIM, claim_key
    elif templates.needs_work(group, view, gates):
        yield POD_GROUP, key
    for pod in view.members(key):
        yield from keys_of_pod(pod, view, gates)


def keys_of_claim(claim: ResourceClaim, view: View, gates: FeatureGates, *, is_deleted: bool = False) -> Iterator[Key]:
    """After a claim change: the claim if it needs a write, and its users.

    Calling the reconciler costs less than a pass through the queue, and most claim changes need nothing.
    """
    key = key_of(claim.metadata.namespace, claim.metadata.name)
    if not is_deleted and claims.reconcile_claim(claim, view, {}, gates):
        yield CLAIM, key
    for pod in view.pods_using(key):
        if templates.needs_work(pod, view, gates):
            yield POD, key_of(pod.metadata.namespace, pod.metadata.name)
    for group in view.pod_groups_using(key):
        yield from keys_of_pod_group(group, view, gates)
