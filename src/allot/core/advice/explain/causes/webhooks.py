"""Webhooks that the API server cannot call: what keeps the pods behind them from being there, which may be a webhook as well, or the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from allot.core.advice.explain.causes.containers import container_trouble
from allot.core.advice.explain.causes.selecting import without_endpoints
from allot.core.advice.explain.wording import one_line
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1, observed_v1
from allot.core.model.apps_v1 import DaemonSet, Deployment, ReplicaSet, StatefulSet
from allot.core.model.meta import LabelSelector, RawJSON
from allot.core.workloads.ownership import controller_reference, selector_of
from allot.core.workloads.pod_templates import template_value
from allot.core.workloads.service_endpoints import selects

_CALL = re.compile(
    r'failed calling webhook "(?P<name>[^"]+)"(?:.*?https://(?P<service>[\w-]+)\.(?P<namespace>[\w-]+)\.svc)?',
    re.DOTALL,
)
_CREATING = "Error creating: "
_NAME_LABEL = "kubernetes.io/metadata.name"
_Maker = Deployment | StatefulSet | DaemonSet
_Configuration = observed_v1.MutatingWebhookConfiguration | observed_v1.ValidatingWebhookConfiguration


class Unanswered(NamedTuple):
    """A call that fails. text: why, phrased to follow the message; empty if unknown."""

    text: str
    advice: tuple[str, ...]


def unanswered(what_if: WhatIfCluster, said: str, *, what: str = "every pod") -> Unanswered | None:
    """The webhook that a refusal is about; None if it is about something else. what: the webhook must approve."""
    call = _CALL.search(said)
    return _unanswered(what_if, call, what, ()) if call is not None else None


def _unanswered(what_if: WhatIfCluster, call: re.Match[str], what: str, before: tuple[str, ...]) -> Unanswered:
    """before: the webhooks that wait for this one."""
    hook, service, namespace = call["name"], call["service"], call["namespace"]
    found = next(_configured(what_if, hook), None)
    config = _spoken(found[0]) if found is not None else ""
    ignore = (f"in an emergency: set failurePolicy: Ignore for webhook {hook} in {config}",) if config else ()
    if not service:
        return Unanswered("", (f"make it answer: webhook {hook} must approve {what}", *ignore))
    name = f"Service {namespace}/{service}"
    why, fix = without_endpoints(what_if, namespace, service)
    asked = f" ({config} has failurePolicy: Fail)" if config else ""
    maker = _maker(what_if, namespace, service) if why else None
    if maker is not None:
        refused = refusal(what_if, maker)
        further = _CALL.search(refused)
        whose = f"{type(maker).__name__} {full_name(maker)}"
        text = f"; {name} has no endpoints because the pods of {whose} behind it"
        if (further is not None and further["name"] == hook) or (not refused and _covers(what_if, found, maker)):
            return Unanswered(f"{text} need this webhook as well{asked}", _exempting(found, maker, hook))
        if further is not None and further["name"] in before:
            other = next(_configured(what_if, further["name"]), None)
            return Unanswered(
                f"{text} need webhook {further['name']} in turn", _exempting(other, maker, further["name"])
            )
        if further is not None:
            deeper = _unanswered(what_if, further, what, (*before, hook))
            return Unanswered(f"{text} need webhook {further['name']}{deeper.text}", deeper.advice)
        if refused:
            see = f"allot explain {type(maker).__name__.lower()}/{maker.metadata.name} -n {namespace}"
            return Unanswered(f"{text} cannot be created: {refused}", (f"let {whose} have its pods: {see}", *ignore))
    text = f"; {name} {why}{asked}" if why else ""
    broken = _broken(what_if, namespace, service) if why else None
    if broken is not None:
        return Unanswered(f"{text}: {broken.text}", (*broken.advice, *ignore))
    return Unanswered(text, (f"{fix or f'make {name} answer'}: webhook {hook} must approve {what}", *ignore))


def _exempting(found: tuple[_Configuration, observed_v1.Webhook] | None, maker: _Maker, hook: str) -> tuple[str, ...]:
    """How the pods of a webhook start without another one, or without itself."""
    namespace = maker.metadata.namespace
    again = f"until {type(maker).__name__} {full_name(maker)} runs"
    if found is None:
        return (f"set failurePolicy: Ignore for webhook {hook} {again}",)
    config = _spoken(found[0])
    exempt = f"exempt namespace {namespace} from webhook {hook} in {config} (namespaceSelector: {_NAME_LABEL} NotIn [{namespace}])"
    return (
        f"{exempt}, so that the pods of {type(maker).__name__} {full_name(maker)} can start",
        f"in an emergency: set failurePolicy: Ignore for webhook {hook} in {config} {again}",
    )


def _spoken(found: _Configuration) -> str:
    return f"{type(found).__name__} {found.metadata.name}"


def _configured(what_if: WhatIfCluster, hook: str) -> Iterator[tuple[_Configuration, observed_v1.Webhook]]:
    """The objects that make a webhook's answer necessary."""
    known: list[_Configuration] = [
        *what_if.all(observed_v1.MutatingWebhookConfiguration),
        *what_if.all(observed_v1.ValidatingWebhookConfiguration),
    ]
    for found in known:
        for each in found.webhooks:
            if each.name == hook and each.failure_policy in ("", "Fail"):
                yield found, each


def _maker(what_if: WhatIfCluster, namespace: str, service: str) -> _Maker | None:
    """What should make the pods of a Service that has none."""
    found = what_if.get(core_v1.Service, service, namespace)
    if found is None:
        return None
    makers: list[_Maker] = [*what_if.all(Deployment), *what_if.all(StatefulSet), *what_if.all(DaemonSet)]
    here = [each for each in makers if each.metadata.namespace == namespace]
    meant = [each for each in here if selects(found.spec.selector, _labels_of(each.spec.template))]
    pods = [pod for pod in what_if.all(core_v1.Pod) if pod.metadata.namespace == namespace]
    wanted = [each for each in meant if isinstance(each, DaemonSet) or each.spec.replicas != 0]
    return wanted[0] if wanted and not any(selects(found.spec.selector, pod.metadata.labels) for pod in pods) else None


def _labels_of(template: RawJSON | None) -> dict[str, str]:
    value = template_value(template) if template is not None else {}
    return (value.get("metadata") or {}).get("labels") or {}


def refusal(what_if: WhatIfCluster, maker: _Maker) -> str:
    """Why the API server last refused the pods of a workload; empty if it did not, or if that is not known."""
    metadata = maker.metadata
    names = {(type(maker).__name__, metadata.name)}
    if isinstance(maker, Deployment):
        for each in maker.status.conditions:
            if each.type == "ReplicaFailure" and each.status == "True":
                return one_line(each.message).removeprefix(_CREATING)
        for made in what_if.all(ReplicaSet):
            above = controller_reference(made.metadata)
            if above is not None and above.uid == metadata.uid:
                names.add(("ReplicaSet", made.metadata.name))
    events = [
        event
        for event in what_if.all(observed_v1.Event)
        if event.reason == "FailedCreate"
        and (event.involved_object.kind, event.involved_object.name) in names
        and (event.involved_object.namespace or event.metadata.namespace) == metadata.namespace
    ]
    newest = max(events, key=lambda event: event.seen_at, default=None)
    return one_line(newest.message).removeprefix(_CREATING) if newest is not None else ""


def _covers(what_if: WhatIfCluster, found: tuple[_Configuration, observed_v1.Webhook] | None, maker: _Maker) -> bool:
    """Whether a webhook is asked about the pods of a workload, too."""
    if found is None:
        return False
    namespace = what_if.get(core_v1.Namespace, maker.metadata.namespace)
    labels = {_NAME_LABEL: maker.metadata.namespace, **(namespace.metadata.labels if namespace is not None else {})}
    hook = found[1]
    return _matches(hook.namespace_selector, labels) and _matches(hook.object_selector, _labels_of(maker.spec.template))


def _matches(selector: LabelSelector | None, labels: dict[str, str]) -> bool:
    requirements = selector_of(selector)
    return requirements is None or requirements.matches(labels)


def _broken(what_if: WhatIfCluster, namespace: str, service: str) -> Unanswered | None:
    """What is wrong with the pods of a Service that are not ready."""
    found = what_if.get(core_v1.Service, service, namespace)
    selector = found.spec.selector if found is not None else {}
    for pod in what_if.all(core_v1.Pod):
        if pod.metadata.namespace == namespace and selector and selects(selector, pod.metadata.labels):
            trouble = container_trouble(what_if, pod)
            if trouble is not None:
                fix = (
                    trouble.advice[0] if trouble.advice else f"kubectl describe pod -n {namespace} {pod.metadata.name}"
                )
                return Unanswered(trouble.text, (f"fix pod {full_name(pod)}: {fix}",))
    return None
