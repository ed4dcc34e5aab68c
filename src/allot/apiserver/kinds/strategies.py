"""Strategies of the built-in kinds: what happens to their objects on the way in.

`strategy_for` picks: kinds of device allocation and gangs, and pods, have the typed validation of `core.validation.validate`;
all others the generic strategy with the rules of `core.validation.builtin`, or of `core.policies` where they compile expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allot.apiserver.customresources.definition_strategy import DefinitionStrategy
from allot.apiserver.kinds.generic import GenericStrategy, SigningRequestStrategy
from allot.apiserver.kinds.typed import ClaimStrategy, PodStrategy, TypedStrategy
from allot.apiserver.resources import Resource, Strategy
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.policies import registration

_TYPED_GROUPS = ("resource.k8s.io",)
_TYPED_KINDS = ("Workload", "PodGroup", "CompositePodGroup")


def strategy_for(
    resource: Resource, *, gates: FeatureGates = DEFAULT_GATES, now: Callable[[], str] | None = None
) -> Strategy:
    """The strategy of a row. `now` gives the time for defaults that are times; without it they stay unset."""
    clock: Callable[[], Any] = now or _no_time
    if resource.group in _TYPED_GROUPS and resource.kind == "ResourceClaim":
        return ClaimStrategy(resource, gates, clock)
    if resource.group in _TYPED_GROUPS or resource.kind in _TYPED_KINDS:
        return TypedStrategy(resource, gates, clock)
    if (resource.group, resource.kind) == ("", "Pod"):
        return PodStrategy(resource, gates)
    if resource.kind == "CertificateSigningRequest":
        return SigningRequestStrategy(resource, clock)
    if resource.kind == "CustomResourceDefinition":
        return DefinitionStrategy(resource)
    return GenericStrategy(resource, registration.RULES.get((resource.group, resource.kind)))


def _no_time() -> None:
    return None
