"""How many copies the quotas of their namespaces allow: each copy's pods, claims and group are charged as in admission.

Copies are equal, so the number is a quotient. Unknown here: defaults from a LimitRange, and claims that the scheduler
creates for extended resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from allot.core.advice.planning.copies import Copy
from allot.core.advice.what_if import Journal, WhatIfCluster, as_json
from allot.core.lifecycle.times import time_of
from allot.core.model import core_v1, observed_v1
from allot.core.model import resource_v1 as api
from allot.core.quantity import Quantity
from allot.core.quota.amounts import Amounts, amounts_text, exceeded, mask, nonzero, plus
from allot.core.quota.charge import Quota, applies, quota_of
from allot.core.quota.claims import device_classes
from allot.core.quota.measure import measure, wanted_quota
from allot.core.quota.pods import missing_requests
from allot.core.quota.usage import CLAIMS, PODS, QuotaContext, matching_names, usage_of

_GROUPS = ("scheduling.k8s.io", "podgroups")

# Kind, as group and plural, and the object.
_Request = tuple[tuple[str, str], dict[str, Any]]


class QuotaLimit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The quota that allows the fewest copies. message: its refusal of one more."""

    namespace: str
    name: str
    copies: int
    message: str


class QuotaAnswer(msgspec.Struct, frozen=True):
    """limit: None if there is none; notes: what could not be counted."""

    limit: QuotaLimit | None = None
    notes: tuple[str, ...] = ()


def quota_limit(what_if: WhatIfCluster, copy: Copy) -> QuotaAnswer:
    """The limit from the quotas of a copy's namespaces."""
    quotas = what_if.all(observed_v1.ResourceQuota)
    if not quotas:
        return QuotaAnswer()
    around = _context(what_if)
    by_namespace: dict[str, list[_Request]] = {}
    for namespace, request in _requests(copy):
        by_namespace.setdefault(namespace, []).append(request)
    limits: list[QuotaLimit] = []
    notes: list[str] = []
    for object_ in quotas:
        namespace = object_.metadata.namespace
        requests = by_namespace.get(namespace)
        if requests:
            quota = _measured(what_if, object_, around)
            limits += _limit(namespace, quota, _added(quota, requests, around, notes))
    return QuotaAnswer(
        min(limits, key=lambda found: (found.copies, found.namespace, found.name), default=None),
        tuple(dict.fromkeys(notes)),
    )


def charge_quotas(what_if: WhatIfCluster, copy: Copy, journal: Journal) -> str:
    """Charges a copy to the quotas of its namespaces; returns the message of one that refuses it."""
    limit = quota_limit(what_if, copy).limit
    if limit is None:
        return ""
    if not limit.copies:
        return limit.message
    around = _context(what_if)
    for object_ in what_if.all(observed_v1.ResourceQuota):
        requests = [request for namespace, request in _requests(copy) if namespace == object_.metadata.namespace]
        quota = _measured(what_if, object_, around)
        used = plus(quota.used, _added(quota, requests, around, []))
        status = observed_v1.ResourceQuotaStatus(hard=quota.hard, used=used)
        what_if.put(msgspec.structs.replace(object_, status=status), journal)
    return ""


def _context(what_if: WhatIfCluster) -> QuotaContext:
    classes = device_classes([as_json(found) for found in what_if.all(api.DeviceClass)])
    return QuotaContext(now=time_of(what_if.now), classes=classes)


def _requests(copy: Copy) -> Iterator[tuple[str, _Request]]:
    for pod in copy.pods:
        # A pod without containers is a placeholder for claims that are planned alone.
        if pod.spec.containers:
            yield pod.metadata.namespace, (PODS, as_json(pod))
    for claim in copy.claims:
        yield claim.metadata.namespace, (CLAIMS, as_json(claim))
    if copy.group is not None and copy.foreign is None:
        yield copy.group.metadata.namespace, (_GROUPS, as_json(copy.group))


def _measured(what_if: WhatIfCluster, object_: observed_v1.ResourceQuota, around: QuotaContext) -> Quota:
    """The quota with the usage from its status, or counted if the status has none."""
    value = as_json(object_)
    quota = quota_of(value)
    if quota.hard and set(quota.hard) <= set(quota.used):
        return quota
    quota = wanted_quota(value) if not quota.hard else quota
    namespace = object_.metadata.namespace
    objects = {
        PODS: [as_json(pod) for pod in what_if.all(core_v1.Pod) if pod.metadata.namespace == namespace],
        CLAIMS: [as_json(claim) for claim in what_if.all(api.ResourceClaim) if claim.metadata.namespace == namespace],
    }
    return msgspec.structs.replace(quota, used=measure(quota, objects, around.classes, around.now))


def _added(quota: Quota, requests: Sequence[_Request], around: QuotaContext, notes: list[str]) -> Amounts:
    """What one copy adds to the usage of a quota."""
    added: Amounts = {}
    for kind, object_ in requests:
        if not applies(quota, kind, object_, around):
            continue
        missing = missing_requests(object_, matching_names(kind, quota.hard, around.classes)) if kind == PODS else ""
        if missing:
            notes.append(f"quota {quota.name}: {missing}: not counted, because a LimitRange may set it")
        added = plus(added, mask(nonzero(usage_of(kind, object_, around)), quota.hard))
    return added


def _limit(namespace: str, quota: Quota, added: Amounts) -> Iterable[QuotaLimit]:
    if not added:
        return
    copies = min(max(0, quota.hard[name].nano - quota.used[name].nano) // amount.nano for name, amount in added.items())
    used = {
        name: Quantity.from_nano(quota.used[name].nano + copies * amount.nano, quota.used[name].format)
        for name, amount in added.items()
    }
    over = exceeded(plus(used, added), quota.hard)
    told = (amounts_text(mask(amounts, over)) for amounts in (added, used, quota.hard))
    message = "exceeded quota: {}, requested: {}, used: {}, limited: {}".format(quota.name, *told)
    yield QuotaLimit(namespace=namespace, name=quota.name, copies=copies, message=message)
