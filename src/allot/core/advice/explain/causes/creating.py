"""Pods that the API server refuses to create: what its message means, and what helps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from allot.core.advice.explain.causes.kinship import origin
from allot.core.advice.explain.causes.webhooks import unanswered
from allot.core.advice.explain.wording import joined
from allot.core.advice.nearest import nearest
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import observed_v1
from allot.core.model.meta import ObjectMeta
from allot.core.model.scheduling_v1 import PriorityClass
from allot.core.quantity import Quantity

_NO_ACCOUNT = re.compile(r'serviceaccount "(?P<name>[^"]+)" not found')
_NO_PRIORITY = re.compile(r"no PriorityClass with name (?P<name>\S+) was found")
_NO_RUNTIME = re.compile(r'RuntimeClass "?(?P<name>[\w.-]+)"? not found')
_POD_SECURITY = re.compile(r'violates PodSecurity "(?P<level>[^":]+)[^"]*"(?P<what>: .+)?')
_DENIED = re.compile(
    r"(?P<who>(?:admission webhook \"[^\"]+\"|ValidatingAdmissionPolicy '[^']+')(?: with binding '[^']+')?) denied (?:the )?request: "
    r"(?P<why>.+)"
)
_LIMIT_RANGE = re.compile(r"(?:maximum|minimum) \S+ usage per|limit to request ratio")
_BOUND = re.compile(
    r"(?P<which>maximum|minimum) (?P<resource>\S+) usage per (?P<per>\w+) is (?P<bound>[^\s,]+)(?:, but (?P<what>limit|request) is "
    r"(?P<asked>[^\s,\]]+))?"
)
_MUST_SPECIFY = re.compile(r"failed quota: \S+: must specify (?P<what>.+? for: .+)")
_SCOPE = re.compile(r"insufficient quota to match these scopes: \[\{?(?P<scope>[^\]}]+)\}?")
_INVALID = re.compile(r"is invalid: \[?(?P<field>spec\.[^\s:]+): ")


def behind(what_if: WhatIfCluster, said: str) -> str:
    """The cause behind a refusal, phrased to follow it: the Service of a webhook has no endpoints; empty if unknown."""
    hook = unanswered(what_if, said)
    return hook.text if hook is not None else ""


class Bound(NamedTuple):
    """A LimitRange that a pod does not keep to. text: phrased to follow a colon."""

    text: str
    advice: tuple[str, ...]


def bounds_of(what_if: WhatIfCluster, kind: str, metadata: ObjectMeta, said: str) -> Bound | None:
    """The LimitRange behind a refusal, with all values that it names; None if the refusal is another one, or the LimitRange is not known."""
    parts = [_bound(what_if, metadata, found) for found in _BOUND.finditer(said)]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    own = f"{_once([part.ask for part in known])} in {_template(what_if, kind, metadata)}"
    own += ", and create it again" if kind == "Job" and origin(what_if, metadata) is None else ""
    return Bound(_once([part.text for part in known]), (own, _once([part.change for part in known])))


def _once(texts: Sequence[tuple[str, str]]) -> str:
    """Sentences in two halves, the first half of each only where it changes: `lower the limits of a to 1 cpu and 2Gi memory`."""
    found: dict[str, list[str]] = {}
    for head, tail in texts:
        found.setdefault(head, []).append(tail)
    return "; ".join(f"{head} {joined(tails)}" for head, tails in found.items())


class _Broken(NamedTuple):
    """One bound of a LimitRange that a pod does not keep to, as the two halves of sentences."""

    text: tuple[str, str]
    ask: tuple[str, str]
    change: tuple[str, str]


def _bound(what_if: WhatIfCluster, metadata: ObjectMeta, found: re.Match[str]) -> _Broken | None:
    which, resource, per = found["which"], found["resource"], found["per"]
    member = "max" if which == "maximum" else "min"
    wanted = Quantity.parse(found["bound"])
    for range_ in what_if.all(observed_v1.LimitRange):
        bounds = [
            getattr(limit, member).get(resource)
            for limit in range_.spec.limits
            if limit.type == per and range_.metadata.namespace == metadata.namespace
        ]
        if not any(bound is not None and bound.nano == wanted.nano for bound in bounds):
            continue
        name = f"LimitRange {range_.metadata.namespace}/{range_.metadata.name}"
        least, most = ("at most", "lower") if member == "max" else ("at least", "raise")
        one = f"one {per.lower()}"
        asks = f"its {found['what']} is {found['asked']}" if found["what"] else "it sets none"
        what = f"{resource} {found['what'] or 'request'}"
        return _Broken(
            (f"{name} allows {one}", f"{least} {found['bound']} {resource} ({asks})"),
            (most, f"the {what} of the {per.lower()} to {least} {found['bound']}"),
            (
                "raise" if member == "max" else "lower",
                f"{member}.{resource} of {name}{' to ' + found['asked'] if found['asked'] else ''}",
            ),
        )
    return None


def _template(what_if: WhatIfCluster, kind: str, metadata: ObjectMeta) -> str:
    """The template that users edit: that of the CronJob, if a CronJob made the Job."""
    found = origin(what_if, metadata)
    return (
        f"the template of {found.kind} {found.name}" if found is not None else f"the template of {kind} {metadata.name}"
    )


def creation_advice(what_if: WhatIfCluster, kind: str, metadata: ObjectMeta, said: str) -> tuple[str, ...]:
    """Remedies for pods that the API server refuses."""
    template = _template(what_if, kind, metadata)
    account = _NO_ACCOUNT.search(said)
    if account is not None:
        return (f"create ServiceAccount {metadata.namespace}/{account['name']}, or name another one in {template}",)
    class_ = _NO_PRIORITY.search(said)
    if class_ is not None:
        meant = nearest(class_["name"], [each.metadata.name for each in what_if.all(PriorityClass)])
        right = (f"set priorityClassName: {meant} in {template}",) if meant is not None else ()
        return (*right, f"create PriorityClass {class_['name']}")
    runtime = _NO_RUNTIME.search(said)
    if runtime is not None:
        return (f"create RuntimeClass {runtime['name']}, or drop runtimeClassName from {template}",)
    if "because it is being terminated" in said:
        return (
            f"use a namespace other than {metadata.namespace}, which is being deleted, or recreate it when it is gone",
        )
    denied = _DENIED.search(said)
    if denied is not None:
        return (f"change in {template} what {denied['who']} refuses: {denied['why']}",)
    violated = _POD_SECURITY.search(said)
    if violated is not None:
        return (
            f"change in {template} what Pod Security level {violated['level']} forbids{violated['what'] or ''}",
            f"allow more in namespace {metadata.namespace}: label pod-security.kubernetes.io/enforce",
        )
    hook = unanswered(what_if, said, what="it" if kind == "Namespace" else "every pod")
    if hook is not None:
        return hook.advice
    unset = _MUST_SPECIFY.search(said)
    if unset is not None:
        return (
            f"set {_unset(unset['what'])} in {template}",
            f"give namespace {metadata.namespace} a LimitRange with defaults for what is not set",
        )
    if _LIMIT_RANGE.search(said):
        return (
            f"ask for what the LimitRange of namespace {metadata.namespace} allows, in {template}",
            "change the LimitRange",
        )
    scope = _SCOPE.search(said)
    if scope is not None:
        return (
            f"give namespace {metadata.namespace} a ResourceQuota for {scope['scope']}, or drop that from {template}",
        )
    wrong = _INVALID.search(said)
    return (f"correct {wrong['field']} in {template}",) if wrong is not None else ()


def _unset(what: str) -> str:
    """`limits.cpu for: a,b; limits.memory for: a`, as the API server says it, by container."""
    fields: dict[str, list[str]] = {}
    for part in what.split(";"):
        field, _, containers = part.partition(" for: ")
        for container in containers.split(","):
            fields.setdefault(container.strip(), []).append(f"resources.{field.strip()}")
    return joined([f"{joined(each)} of container {name}" if name else joined(each) for name, each in fields.items()])
