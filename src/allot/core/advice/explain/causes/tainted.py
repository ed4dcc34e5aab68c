"""Pods whose devices have a NoExecute taint, which evicts them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from allot.core.advice.explain.diagnosis import ClaimPlace, Diagnosis, place_of_claim
from allot.core.advice.explain.holding import controller_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.what_if import WhatIfCluster
from allot.core.lifecycle.device_taint_evictions import matches
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.selectors import tolerates

_NO_EXECUTE = "NoExecute"


def evicting_taint(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """A device taint that evicts its pod, and then the pod's replacements; None if there is
    none. Eviction counts only tolerations with effect NoExecute, whereas the scheduler also accepts one without an effect."""
    for namespace, name in what_if.claims.claims_of(pod):
        claim = what_if.get(api.ResourceClaim, name, namespace)
        if claim is None or claim.status.allocation is None:
            continue
        for result in claim.status.allocation.devices.results:
            for taint, rule in _taints(what_if, result):
                found = _evicted(what_if, pod, claim, result, taint, rule)
                if found is not None:
                    return found
    return None


def evicted_before(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """Why the pod before this one, of the same controller, is being evicted for its devices: so would this one be. None if none is."""
    maker = controller_of(pod)
    for other in what_if.all(core_v1.Pod) if maker is not None else ():
        own = controller_of(other)
        if maker is None or own is None or own.uid != maker.uid or other.metadata.deletion_timestamp is None:
            continue
        found = evicting_taint(what_if, other)
        if found is not None:
            text = f"the pods of {maker.kind} {maker.name} are evicted one after the other: {found.text}"
            return replace(found, text=f"{text}; it waits for pod {other.metadata.name}, which is terminating")
    return None


def _taints(
    what_if: WhatIfCluster, result: api.DeviceRequestAllocationResult
) -> Iterator[tuple[api.DeviceTaint, api.DeviceTaintRule | None]]:
    for slice_ in what_if.all(api.ResourceSlice):
        if (slice_.spec.driver, slice_.spec.pool.name) == (result.driver, result.pool):
            for device in slice_.spec.devices or ():
                if device.name == result.device:
                    yield from ((taint, None) for taint in device.taints if taint.effect == _NO_EXECUTE)
    for rule in what_if.all(api.DeviceTaintRule):
        if rule.spec.taint.effect == _NO_EXECUTE and matches(rule, result):
            yield rule.spec.taint, rule


def _evicted(
    what_if: WhatIfCluster,
    pod: core_v1.Pod,
    claim: api.ResourceClaim,
    result: api.DeviceRequestAllocationResult,
    taint: api.DeviceTaint,
    rule: api.DeviceTaintRule | None,
) -> Diagnosis | None:
    """None if the taint is tolerated, even temporarily: then the eviction is expected."""
    tolerated = [each for each in result.tolerations or _tolerations(claim, result.request) if tolerates(each, taint)]
    if any(each.effect == _NO_EXECUTE for each in tolerated):
        return None
    place = place_of_claim(what_if, pod, claim)
    where = f"request {result.request} of {place.spoken if place is not None else f'claim {claim.metadata.name}'}"
    shown = f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
    by = f" (set by DeviceTaintRule {rule.metadata.name})" if rule is not None else ""
    text = f"device {result.device} of pool {result.pool} has taint {shown}{by}, which evicts the pods that use it"
    repair = (
        f"delete DeviceTaintRule {rule.metadata.name}, if the device can be used again"
        if rule is not None
        else f"repair or reset device {result.device} of pool {result.pool}: driver {result.driver} then removes the taint"
    )
    if not tolerated:
        return Diagnosis(reason=Reason.TAINT, text=text, advice=(repair,))
    text += f": {where} tolerates {taint.key} without an effect, which is enough for the scheduler, but not against eviction"
    advice = (
        f"set effect: {_NO_EXECUTE} in the toleration of {taint.key} in {where}{_again(place)}",
        repair,
    )
    return Diagnosis(reason=Reason.TAINT, text=text, advice=advice)


def _again(place: ClaimPlace | None) -> str:
    """What has to be created again for a change to a claim's spec, which is immutable."""
    what = "template" if place is not None and place.kind == "ResourceClaimTemplate" else "claim"
    return f" (recreate the {what}, then the pod)"


def _tolerations(claim: api.ResourceClaim, request: str) -> tuple[api.DeviceToleration, ...]:
    name, _, alternative = request.partition("/")
    for each in claim.spec.devices.requests:
        if each.name == name:
            leaves = [each.exactly] if each.exactly is not None else []
            subs = [sub.tolerations for sub in each.first_available if sub.name == alternative]
            return next((leaf.tolerations for leaf in leaves), subs[0] if subs else ())
    return ()
