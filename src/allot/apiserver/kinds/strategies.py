"""Strategies of the built-in kinds: how incoming objects are processed.

`strategy_for` selects: kinds of device allocation and gangs, and pods, have the typed validation of `core.validation.validate`;
all others the generic strategy with the rules of `core.validation.builtin`, or of `core.policies` where they compile expressions.
Everything special about a kind is in its strategy and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allot.apiserver.access import escalation
from allot.apiserver.customresources.definition_strategy import DefinitionStrategy
from allot.apiserver.kinds.api_services import ApiServiceStrategy
from allot.apiserver.kinds.claims import ClaimStrategy, ClaimTemplateStrategy
from allot.apiserver.kinds.generic import GenericStrategy
from allot.apiserver.kinds.jobs import JobStrategy
from allot.apiserver.kinds.namespaces import NamespaceStrategy
from allot.apiserver.kinds.pods import PodStrategy
from allot.apiserver.kinds.signing_requests import SigningRequestStrategy
from allot.apiserver.kinds.typed import TypedStrategy
from allot.apiserver.resources import Resource, Strategy
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.policies import registration


def strategy_for(
    resource: Resource, *, gates: FeatureGates = DEFAULT_GATES, now: Callable[[], str] | None = None
) -> Strategy:
    """The strategy of a row. `now` returns the time for defaults that are times; without it they stay unset."""
    clock: Callable[[], Any] = now or _no_time
    match resource.group, resource.kind:
        case ("resource.k8s.io", "ResourceClaim"):
            return ClaimStrategy(resource, gates, clock)
        case ("resource.k8s.io", "ResourceClaimTemplate"):
            return ClaimTemplateStrategy(resource, gates, clock)
        case ("resource.k8s.io", "PodSchedulingContext"):
            return GenericStrategy(resource, gates=gates)
        case ("resource.k8s.io", _) | (_, "Workload" | "PodGroup" | "CompositePodGroup"):
            return TypedStrategy(resource, gates, clock)
        case ("", "Pod"):
            return PodStrategy(resource, gates)
        case ("batch", _):
            return JobStrategy(resource, gates)
        case ("", "Namespace"):
            return NamespaceStrategy(resource)
        case ("certificates.k8s.io", "CertificateSigningRequest"):
            return SigningRequestStrategy(resource, clock)
        case ("apiextensions.k8s.io", "CustomResourceDefinition"):
            return DefinitionStrategy(resource)
        case ("apiregistration.k8s.io", "APIService"):
            return ApiServiceStrategy(resource, clock)
        case ("rbac.authorization.k8s.io", _):
            return GenericStrategy(resource, write_check=escalation.check_write)
    return GenericStrategy(resource, registration.RULES.get((resource.group, resource.kind)), gates=gates)


def _no_time() -> None:
    return None
