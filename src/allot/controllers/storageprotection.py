"""Three controllers that protect storage in use: they wire `core.workloads.storage_protection`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from allot.client.informer import Change, Informer
from allot.client.informers import Informers
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers, Resource
from allot.core.lifecycle.disruption import is_terminal
from allot.core.lifecycle.times import time_of
from allot.core.model.core_v1 import Pod
from allot.core.workloads import storage_protection as rules

Object = dict[str, Any]

_BY_CLAIM = "volume claims named"
_BY_CLASS = "storageprotection: attributes classes"
_BY_NAMESPACE = "storageprotection: leaving, by namespace"

# The key: a volume claim that stays, or a namespace with volume claims that are being deleted.
_Key = tuple[str, str]
_CLAIM = "claim"
_NAMESPACE = "namespace"


def informer_of(informers: Informers, resource: Resource) -> Informer[Object]:
    """The shared informer of a resource with JSON values."""
    return informers.dynamic(resource.group, resource.version, resource.plural, namespaced=resource.namespaced)


def pods_by_claim(informers: Informers) -> tuple[Informer[Pod], str]:
    """The shared informer of pods, and its index by the keys of volume claims that they name."""
    return informers.typed(Pod, indexers={_BY_CLAIM: rules.claim_keys}), _BY_CLAIM


def make_for_claims(services: Services) -> Controller[_Key]:
    """The controller `persistentvolumeclaim-protection-controller`."""
    pods, index = pods_by_claim(services.informers)
    claims = informer_of(services.informers, rules.CLAIMS)
    claims.cache.add_index(_BY_NAMESPACE, _namespace_of_leaving)

    def reconcile(key: _Key, answers: Answers) -> tuple[Action, ...]:
        what, name = key
        if what == _NAMESPACE:
            leaving = claims.cache.by_index(_BY_NAMESPACE, name)
            named_by = {
                f"{name}/{claim['metadata']['name']}": pods.cache.by_index(index, f"{name}/{claim['metadata']['name']}")
                for claim in leaving
            }
            return rules.release_claims(name, leaving, named_by, answers)
        claim = claims.cache.get(name)
        if claim is None:
            return ()
        return rules.reconcile_claim(claim, pods.cache.by_index(index, name), time_of(services.clock.seconds()))

    controller: Controller[_Key] = Controller(
        services,
        reconcile,
        queue_name="pvcprotection",
        component="persistentvolumeclaim-protection-controller",
        waits_for=(pods, claims),
    )

    def look_at(key: str) -> None:
        claim = claims.cache.get(key)
        if claim is None:
            return
        if rules.is_protected(claim, rules.CLAIM_FINALIZER):
            controller.queue.add((_NAMESPACE, claim["metadata"]["namespace"]))
        else:
            controller.queue.add((_CLAIM, key))

    def claim_changed(change: Change[Object]) -> None:
        if change.new is not None:
            look_at(change.key)

    def pod_changed(change: Change[Pod]) -> None:
        pod, old = change.object, change.old
        if old is not None and change.new is not None and old.metadata.uid == pod.metadata.uid:
            # Only creation, binding and the end of a pod change the users of a claim.
            same = (is_terminal(old), old.spec.node_name, old.metadata.deletion_grace_period_seconds) == (
                is_terminal(pod),
                pod.spec.node_name,
                pod.metadata.deletion_grace_period_seconds,
            )
            if same:
                return
        keys = dict.fromkeys(rules.claim_keys(pod))
        if old is not None and old.metadata.uid != pod.metadata.uid:
            keys |= dict.fromkeys(rules.claim_keys(old))
        for key in keys:
            look_at(key)

    claims.add_handler(claim_changed)
    pods.add_handler(pod_changed)
    return controller


def make_for_volumes(services: Services) -> Controller[str]:
    """The controller `persistentvolume-protection-controller`."""
    volumes = informer_of(services.informers, rules.VOLUMES)

    def reconcile(name: str, answers: Answers) -> tuple[Action, ...]:  # noqa: ARG001 - it asks nothing
        volume = volumes.cache.get(name)
        return () if volume is None else rules.reconcile_volume(volume)

    controller: Controller[str] = Controller(
        services,
        reconcile,
        queue_name="pvprotection",
        component="persistentvolume-protection-controller",
        waits_for=(volumes,),
    )

    def volume_changed(change: Change[Object]) -> None:
        if change.new is not None:
            controller.queue.add(change.key)

    volumes.add_handler(volume_changed)
    return controller


def make_for_attributes_classes(services: Services) -> Controller[str]:
    """The controller `volumeattributesclass-protection-controller`."""
    users = [informer_of(services.informers, resource) for resource in (rules.VOLUMES, rules.CLAIMS)]
    classes = informer_of(services.informers, rules.ATTRIBUTES_CLASSES)
    for informer in users:
        informer.cache.add_index(_BY_CLASS, rules.class_names)

    def reconcile(name: str, answers: Answers) -> tuple[Action, ...]:  # noqa: ARG001 - it asks nothing
        class_ = classes.cache.get(name)
        if class_ is None:
            return ()
        found = (user for informer in users for user in informer.cache.by_index(_BY_CLASS, name))
        return rules.reconcile_attributes_class(class_, found)

    controller: Controller[str] = Controller(
        services,
        reconcile,
        queue_name="vacprotection",
        component="volumeattributesclass-protection-controller",
        waits_for=(*users, classes),
    )

    def class_changed(change: Change[Object]) -> None:
        if change.new is not None:
            controller.queue.add(change.key)

    def user_changed(change: Change[Object]) -> None:
        if change.old is not None:
            after = () if change.new is None else tuple(rules.class_names(change.new))
            for name in rules.class_names(change.old):
                if name not in after:
                    controller.queue.add(name)

    classes.add_handler(class_changed)
    for informer in users:
        informer.add_handler(user_changed)
    return controller


def _namespace_of_leaving(claim: Object) -> Iterable[str]:
    return (claim["metadata"]["namespace"],) if rules.is_protected(claim, rules.CLAIM_FINALIZER) else ()
