"""The controllers of certificate requests and trust bundles: wire `core.lifecycle.signing_requests`.

Signing needs an authority, which only some processes have. Otherwise that controller is idle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from allot.client.informer import Change, Informer
from allot.controllers.runner import Controller, Runnable, Services
from allot.controllers.serviceaccounts import Resting
from allot.core.lifecycle import signing_requests
from allot.core.lifecycle.actions import Action, Answers, Resource
from allot.core.lifecycle.signing_requests import BUNDLES, POD_REQUESTS, REQUESTS, SERVING_SIGNER

Object = dict[str, Any]
# What to do about one object.
_Decide = Callable[[Object, Answers], Sequence[Action]]

SIGNING = "certificatesigningrequest-signing-controller"


def make_approver(services: Services) -> Runnable:
    """The controller `certificatesigningrequest-approving-controller`."""
    return _each(services, REQUESTS, signing_requests.approve, "certificatesigningrequest-approving-controller")


def make_signer(services: Services) -> Runnable:
    """The controller `certificatesigningrequest-signing-controller`."""
    sign, most_s = services.sign_certificate, services.signing_duration_s
    if sign is None:
        return Resting()
    return _each(services, REQUESTS, lambda request, _: signing_requests.sign(request, sign, most_s), SIGNING)


def make_cleaner(services: Services) -> Runnable:
    """The controller `certificatesigningrequest-cleaner-controller`."""
    now = services.clock.seconds
    return _each(
        services,
        REQUESTS,
        lambda request, _: signing_requests.clean(request, now()),
        "certificatesigningrequest-cleaner-controller",
    )


def make_pod_cleaner(services: Services) -> Runnable:
    """The controller `podcertificaterequest-cleaner-controller`."""
    now = services.clock.seconds
    return _each(
        services,
        POD_REQUESTS,
        lambda request, _: signing_requests.clean_pod_request(request, now()),
        "podcertificaterequest-cleaner-controller",
    )


def make_publisher(services: Services) -> Runnable:
    """The controller `kube-apiserver-serving-clustertrustbundle-publisher-controller`."""
    if not services.root_ca:
        return Resting()
    bundles = _informer(services, BUNDLES, field_selector=f"spec.signerName={SERVING_SIGNER}")

    def reconcile(_key: str, _answers: Answers) -> Sequence[Action]:
        return signing_requests.publish(bundles.cache, services.root_ca)

    name = "kube-apiserver-serving-clustertrustbundle-publisher-controller"
    controller: Controller[str] = Controller(
        services,
        reconcile,
        queue_name="ca_cert_publisher_cluster_trust_bundles",
        component=name,
        waits_for=(bundles,),
    )
    # All of them together are one task; the first time, there may be none.
    bundles.add_handler(lambda _: controller.queue.add(""))
    controller.queue.add("")
    return controller


def _each(services: Services, resource: Resource, decide: _Decide, name: str) -> Controller[str]:
    """A controller that looks at every object by itself."""
    objects = _informer(services, resource)

    def reconcile(key: str, answers: Answers) -> Sequence[Action]:
        object_ = objects.cache.get(key)
        return () if object_ is None else decide(object_, answers)

    controller: Controller[str] = Controller(
        services, reconcile, queue_name=name.removesuffix("-controller"), component=name, waits_for=(objects,)
    )

    def notice(change: Change[Object]) -> None:
        if change.new is not None:
            controller.queue.add(change.key)

    objects.add_handler(notice)
    return controller


def _informer(services: Services, resource: Resource, field_selector: str = "") -> Informer[Object]:
    return services.informers.dynamic(
        resource.group,
        resource.version,
        resource.plural,
        namespaced=resource.namespaced,
        field_selector=field_selector,
    )
