"""Whether a request fits into a quota, and the quota's usage afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.json_objects import mapping
from allot.core.quantity import Quantity
from allot.core.quota.amounts import Amounts, amounts_text, exceeded, increase, mask, nonzero, parse_amounts, plus
from allot.core.quota.pods import missing_requests
from allot.core.quota.usage import PODS, QuotaContext, in_scope, matching_names, usage_of

Object = Mapping[str, Any]


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """A ResourceQuota as far as charging it needs. hard and used are the status'."""

    name: str
    spec: Object
    hard: Mapping[str, Quantity]
    used: Mapping[str, Quantity]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is about to be written. old: what it replaces."""

    kind: tuple[str, str]
    object: Object
    old: Object | None = None
    # A write of the status is charged but never refused.
    may_exceed: bool = False


class Refusal(msgspec.Struct, frozen=True):
    """Why a request does not fit. exceeded: it would, if less were used."""

    message: str
    exceeded: bool = False


def quota_of(object_: Object) -> Quota:
    """From a ResourceQuota object."""
    spec, status = mapping(object_.get("spec")), mapping(object_.get("status"))
    name = str(mapping(object_.get("metadata")).get("name") or "")
    return Quota(name=name, spec=spec, hard=parse_amounts(status.get("hard")), used=parse_amounts(status.get("used")))


def applies(quota: Quota, kind: tuple[str, str], object_: Object, around: QuotaContext) -> bool:
    """Whether a quota has to do with an object."""
    return bool(matching_names(kind, quota.hard, around.classes)) and in_scope(kind, quota.spec, object_)


def charge(quota: Quota, request: Request, around: QuotaContext) -> Amounts | Refusal:
    """What the request adds to the usage of the quota (nothing if the quota does not apply), or why it may not."""
    if not applies(quota, request.kind, request.object, around):
        return {}
    names = matching_names(request.kind, quota.hard, around.classes)
    missing = missing_requests(request.object, names) if request.kind == PODS else ""
    if missing:
        return Refusal(f"failed quota: {quota.name}: {missing}")
    unknown = sorted(name for name in names if name not in quota.used)
    if unknown:
        return Refusal(f"status unknown for quota: {quota.name}, resources: {','.join(sorted(names))}")
    usage = usage_of(request.kind, request.object, around)
    negative = sorted(name for name, amount in usage.items() if amount.sign() < 0)
    if negative:
        return Refusal(f"quota usage is negative for resource(s): {','.join(negative)}")
    if request.old is not None and applies(quota, request.kind, request.old, around):
        usage = increase(usage, usage_of(request.kind, request.old, around))
    added = mask(nonzero(usage), quota.hard)
    over = exceeded(mask(plus(quota.used, added), added), quota.hard)
    if over and not request.may_exceed:
        told = (amounts_text(mask(amounts, over)) for amounts in (added, quota.used, quota.hard))
        return Refusal("exceeded quota: {}, requested: {}, used: {}, limited: {}".format(quota.name, *told), True)
    return added


def total_usage(
    quota: Quota, objects: Iterable[tuple[tuple[str, str], Sequence[Object]]], around: QuotaContext
) -> Amounts:
    """What existing objects use of everything that a quota limits."""
    used: Amounts = dict.fromkeys(quota.hard, Quantity.ZERO)
    for kind, items in objects:
        if not matching_names(kind, quota.hard, around.classes):
            continue
        for item in items:
            if in_scope(kind, quota.spec, item):
                used = plus(used, mask(usage_of(kind, item, around), quota.hard))
    return used
