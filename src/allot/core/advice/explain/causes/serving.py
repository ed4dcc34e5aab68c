"""APIs of extension API servers that are not served: the Service behind an APIService, and what is wrong with it."""

from __future__ import annotations

from allot.core.advice.explain.causes.selecting import Unselected, scale_up, scaled_to_nothing, without_endpoints
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model.core_v1 import Service
from allot.core.model.observed_v1 import APIService

_NO_SERVICE = "ServiceNotFound"


def not_served(what_if: WhatIfCluster, entry: APIService) -> Unselected | None:
    """Why an API is not available, and what makes it so; None if it is, or if the API server serves it itself."""
    service, name = entry.spec.service, entry.metadata.name
    down = next((each for each in entry.status.conditions if each.type == "Available" and each.status == "False"), None)
    if service is None or down is None:
        return None
    text, behind = f"APIService {name} is not available", f"Service {service.namespace}/{service.name}"
    there = what_if.get(Service, service.name, service.namespace)
    selector = there.spec.selector if there is not None else {}
    empty = scaled_to_nothing(what_if, service.namespace, selector, service.name)
    if empty is not None:
        return Unselected(f"{text}: Deployment {full_name(empty)} is scaled to 0", scale_up(what_if, empty))
    if there is None and down.reason == _NO_SERVICE:
        return Unselected(
            f"{text}: its {behind} does not exist ({_NO_SERVICE})",
            f"kubectl delete apiservice {name}, if that API is no longer needed, or reinstall {behind}",
        )
    why, fix = without_endpoints(what_if, service.namespace, service.name)
    see = f"see kubectl describe apiservice {name}"
    if why:
        return Unselected(f"{text}: {behind} {why}", fix or see)
    return Unselected(f"{text} ({down.message or down.reason})", see)
