"""pods/eviction: a deletion that disruption budgets may refuse.

The budget's status is charged by compare-and-swap before the pod is deleted, so that two evictions cannot share one
allowance.
"""

from __future__ import annotations

from typing import Any

import msgspec

from allot.apiserver.admission.attributes import Operation
from allot.apiserver.aside import size_of
from allot.apiserver.bindings import SUCCESS
from allot.apiserver.deletes import delete_object
from allot.apiserver.errors import StatusError, bad_request, forbidden, not_found, timeout
from allot.apiserver.fieldchecks import EVICTION, read_part
from allot.apiserver.objectmeta import metadata_of, text_of
from allot.apiserver.options import DeleteOptions, delete_options, write_options
from allot.apiserver.registry import Served
from allot.apiserver.request import ApiObject, ApiRequest
from allot.apiserver.server_context import ServerContext
from allot.apiserver.storing import owned
from allot.core.model.codec import DecodeError, decode
from allot.core.model.meta import LabelSelector
from allot.core.selectors import SelectorError, label_requirements
from allot.store.port import Entry, KeyNotFound, RevisionConflict

Object = dict[str, Any]

_ATTEMPTS = 5
_RETRY_S = 10
_DISRUPTED_PODS_MAX = 2000


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
    entry = await context.store.get(served.key(request.namespace, request.name))
    if entry is None:
        raise not_found("", "pods", request.name)
    await context.admission.admit(
        request, Operation.CREATE, served.resource, body, None, subresource="eviction", dry_run=options.dry_run
    )
    if not _needs_no_budget(entry.object):
        await _charge(context, entry.object, request.namespace, options)
    await delete_object(context, served, request, options)
    return ApiObject(object=SUCCESS, status=201, warnings=warnings)


def _needs_no_budget(pod: Object) -> bool:
    """Pods that are not running any more, or not yet, disrupt nothing."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


async def _charge(context: ServerContext, pod: Object, namespace: str, options: DeleteOptions) -> None:
    budgets = context.registry.storage_row("policy", "poddisruptionbudgets")
    if budgets is None:
        return
    for _ in range(_ATTEMPTS):
        page = await context.store.list(budgets.prefix(namespace))
        matching = [entry for entry in page.entries if _selects(entry.object, pod)]
        if not matching:
            return
        if len(matching) > 1:
            text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise StatusError(500, "", text)
        charged = _charged(matching[0], pod["metadata"]["name"], context.clock.now())
        if options.dry_run or charged is None:
            return
        try:
            await context.store.update(matching[0].key, owned(charged), matching[0].revision)
            return
        except (RevisionConflict, KeyNotFound):
            continue
    raise timeout("couldn't update PodDisruptionBudget due to conflicts", retry_after_s=_RETRY_S)


def _selects(budget: Object, pod: Object) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    if not isinstance(selector, dict):
        return False
    try:
        requirements = label_requirements(decode(selector, LabelSelector).object)
    except (DecodeError, SelectorError):
        return False
    return requirements is not None and requirements.matches(pod["metadata"].get("labels") or {})


def _charged(entry: Entry, pod: str, now: str) -> Object | None:
    """The budget with one disruption less; None if the pod does not count."""
    budget = entry.object
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _too_many(f"The disruption budget {name} is still being processed by the server.", _RETRY_S)
    allowed = status.get("disruptionsAllowed", 0)
    disrupted = status.get("disruptedPods") or {}
    if len(disrupted) > _DISRUPTED_PODS_MAX:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden("policy", "poddisruptionbudget", name, why)
    if allowed <= 0:
        raise _too_many(_why_none(name, status))
    changed = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": {**disrupted, pod: now}}
    return {**budget, "status": changed}


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
    """429. Without seconds clients are told at once; with them they wait and ask again by themselves."""
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    if retry_s:
        details["retryAfterSeconds"] = retry_s
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    headers = {"Retry-After": str(retry_s)} if retry_s else {}
    return StatusError(429, "TooManyRequests", text, details=details, headers=headers)
