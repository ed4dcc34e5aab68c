"""pods/eviction: a deletion that disruption budgets may refuse.

The budget's status is charged by compare-and-swap before the pod is deleted, so that two evictions cannot share one
allowance.
"""

from __future__ import annotations

from typing import Any

import msgspec

from allot.apiserver.admission.attributes import Operation
from allot.apiserver.aside import size_of
from allot.apiserver.errors import StatusError, bad_request, conflict, forbidden, not_found, timeout
from allot.apiserver.handlers.bindings import SUCCESS
from allot.apiserver.handlers.deletes import check_preconditions, delete_object
from allot.apiserver.handlers.storing import MODIFIED, owned
from allot.apiserver.objects.fieldchecks import EVICTION, read_part
from allot.apiserver.objects.objectmeta import metadata_of, text_of
from allot.apiserver.objects.options import DeleteOptions, delete_options, write_options
from allot.apiserver.registry import Served
from allot.apiserver.request import ApiObject, ApiRequest
from allot.apiserver.server_context import ServerContext
from allot.core.model.codec import DecodeError, decode
from allot.core.model.meta import LabelSelector
from allot.core.selectors import SelectorError, label_requirements
from allot.store.port import Entry, KeyNotFound, RevisionConflict

Object = dict[str, Any]

_ATTEMPTS = 5
_RETRY_S = 10
_DISRUPTED_PODS_MAX = 2000
_STILL_PROCESSED = "The disruption budget {} is still being processed by the server."


async def evict(context: ServerContext, served: Served, request: ApiRequest) -> ApiObject:
    """POST of an Eviction."""
    asked = write_options(request.query, request.user_agent, "Create")
    body, warnings = await context.aside.run(
        size_of(request.body), read_part, request, served, context.registry, EVICTION, asked.field_validation
    )
    if text_of(metadata_of(body), "name") != request.name:
        raise bad_request("name in URL does not match name in Eviction object")
    options = delete_options(request.query, body.get("deleteOptions"))
    if asked.dry_run:
        options = msgspec.structs.replace(options, dry_run=True)
    await _found(context, served, request)
    await context.admission.admit(
        request, Operation.CREATE, served.resource, body, None, subresource="eviction", dry_run=options.dry_run
    )
    for attempt in range(_ATTEMPTS):
        pod = (await _found(context, served, request)).object
        if _needs_no_budget(pod):
            exact, budget = _must_stay_unready(pod), ""
        else:
            exact, budget = await _charge(context, pod, request.namespace, options)
        is_asked = bool(options.resource_version)
        guarded = options
        if exact and not is_asked:
            # The pod must not have become ready since it was read.
            guarded = msgspec.structs.replace(options, resource_version=pod["metadata"]["resourceVersion"])
        try:
            guarded = await _mark(context, served, request, guarded)
            await delete_object(context, served, request, guarded)
        except StatusError as error:
            if error.code != 409 or is_asked or not exact:
                raise
            if budget:
                raise _too_many(_STILL_PROCESSED.format(budget), _RETRY_S) from None
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        break
    return ApiObject(object=SUCCESS, status=201, warnings=warnings)


async def _found(context: ServerContext, served: Served, request: ApiRequest) -> Entry:
    entry = await context.store.get(served.key(request.namespace, request.name))
    if entry is None:
        raise not_found("", "pods", request.name)
    return entry


def _needs_no_budget(pod: Object) -> bool:
    """Evicting pods that have finished, or not started yet, disrupts nothing."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def _must_stay_unready(pod: Object) -> bool:
    """Whether a pod that needs no budget could still become one that does."""
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not ended and not pod["metadata"].get("deletionTimestamp")


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


async def _mark(context: ServerContext, served: Served, request: ApiRequest, options: DeleteOptions) -> DeleteOptions:
    """Set the disruption condition in the pod's status. Returns options that restrict the deletion to the resulting state."""
    if options.dry_run:
        return options
    for _ in range(_ATTEMPTS):
        entry = await _found(context, served, request)
        check_preconditions(served, entry, options)
        marked = _marked(entry.object, context.clock.now())
        if marked is entry.object:
            return options
        try:
            after = await context.store.update(entry.key, owned(marked), entry.revision)
        except RevisionConflict:
            continue
        except KeyNotFound:
            raise not_found("", "pods", request.name) from None
        if options.resource_version:
            return msgspec.structs.replace(options, resource_version=after.object["metadata"]["resourceVersion"])
        return options
    raise conflict("", "pods", request.name, MODIFIED)


def _marked(pod: Object, now: str) -> Object:
    """The pod with the disruption condition; the same object if it already has it."""
    status = pod.get("status") or {}
    conditions = list(status.get("conditions") or ())
    old: Object = next((one for one in conditions if one.get("type") == "DisruptionTarget"), {})
    told = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    if all(old.get(key) == value for key, value in told.items()):
        return pod
    since = old.get("lastTransitionTime") if old.get("status") == "True" else None
    others = [one for one in conditions if one is not old]
    condition = {**told, "lastProbeTime": None, "lastTransitionTime": since or now}
    return {**pod, "status": {**status, "conditions": [*others, condition]}}


async def _charge(context: ServerContext, pod: Object, namespace: str, options: DeleteOptions) -> tuple[bool, str]:
    """Take an allowance from the pod's budget, or none if the pod is unready anyway: then it may be deleted only in its current state.
    Returns whether that is so, and the budget's name."""
    budgets = context.registry.storage_row("policy", "poddisruptionbudgets")
    if budgets is None:
        return False, ""
    for _ in range(_ATTEMPTS):
        page = await context.store.list(budgets.prefix(namespace))
        matching = [entry for entry in page.entries if _selects(entry.object, pod)]
        if not matching:
            return False, ""
        if len(matching) > 1:
            text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise StatusError(500, "", text)
        name = matching[0].object["metadata"]["name"]
        if not _is_ready(pod) and _allows_unhealthy(matching[0].object):
            return True, name
        charged = _charged(matching[0], pod["metadata"]["name"], context.clock.now())
        if options.dry_run:
            return False, name
        try:
            await context.store.update(matching[0].key, owned(charged), matching[0].revision)
            return False, name
        except (RevisionConflict, KeyNotFound):
            continue
    raise timeout("couldn't update PodDisruptionBudget due to conflicts", retry_after_s=_RETRY_S)


def _allows_unhealthy(budget: Object) -> bool:
    """Whether unready pods may be evicted: always, or while the application is not disrupted."""
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    return bool(status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0)


def _selects(budget: Object, pod: Object) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    if not isinstance(selector, dict):
        return False
    try:
        requirements = label_requirements(decode(selector, LabelSelector).object)
    except (DecodeError, SelectorError):
        return False
    return requirements is not None and requirements.matches(pod["metadata"].get("labels") or {})


def _charged(entry: Entry, pod: str, now: str) -> Object:
    """The budget with one disruption fewer."""
    budget = entry.object
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _too_many(_STILL_PROCESSED.format(name), _RETRY_S)
    allowed = status.get("disruptionsAllowed", 0)
    disrupted = status.get("disruptedPods") or {}
    if len(disrupted) > _DISRUPTED_PODS_MAX:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden("policy", "poddisruptionbudget", name, why)
    if allowed <= 0:
        raise _too_many(_why_none(name, status))
    changed = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": {**disrupted, pod: now}}
    if allowed == 1:
        changed["conditions"] = _insufficient(status, now)
    return {**budget, "status": changed}


def _insufficient(status: Object, now: str) -> list[Object]:
    """The conditions of a budget that allows no more."""
    conditions = list(status.get("conditions") or ())
    old: Object = next((one for one in conditions if one.get("type") == "DisruptionAllowed"), {})
    since = old.get("lastTransitionTime") if old.get("status") == "False" else None
    told = {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": since or now,
        "reason": "InsufficientPods",
        "message": "",
    }
    return [told if one is old else one for one in conditions] if old else [*conditions, told]


def _why_none(name: str, status: Object) -> str:
    """Why a budget allows no disruption now."""
    conditions = [each for each in status.get("conditions") or () if each.get("type") == "DisruptionAllowed"]
    condition = conditions[0] if conditions and conditions[0].get("status") == "False" else {}
    message, reason = condition.get("message"), condition.get("reason")
    closed = f"The disruption budget {name} does not allow evicting pods currently"
    if message and reason == "SyncFailed":
        return f"{closed} because it failed sync: {message}"
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"{closed} ({reason}): {message}" if message else closed


def _too_many(cause: str, retry_s: int = 0) -> StatusError:
    """429. Without seconds, clients report it at once; with them, they wait and retry by themselves."""
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    if retry_s:
        details["retryAfterSeconds"] = retry_s
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    headers = {"Retry-After": str(retry_s)} if retry_s else {}
    return StatusError(429, "TooManyRequests", text, details=details, headers=headers)
