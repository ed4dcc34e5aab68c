"""Arguments of plugins in a KubeSchedulerConfiguration, and how values in such files are read.

A part of `configuration`: each reader turns the arguments of one plugin into settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from allot.core.model.core_v1 import NodeAffinity
from allot.core.scheduling.podinfo import SCHEDULE_ANYWAY, Spread, preferences
from allot.core.scheduling.settings import AddedAffinity, ResourceWeight, ShapePoint, Strategy
from allot.core.selectors import node_matcher
from allot.core.validation.builtin.placement import check_affinity

T = TypeVar("T")


class BadConfiguration(ValueError):
    """A configuration that cannot be used; the text names the file, the field and the value."""


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Unknown fields are errors: a misspelt one would silently do nothing."""


def typed(value: object, type_: type[T], source: str) -> T:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at ")
        field = path.strip("`").removeprefix("$").removeprefix(".")
        text = text[:1].lower() + text[1:]
        raise BadConfiguration(f"{source}: {field}: {text}" if field else f"{source}: {text}") from None


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration_s(text: str, where: str) -> float:
    """Seconds from a duration as Go writes it: 10s, 1m30s, 500ms."""
    position, total = 0, 0.0
    for match in _DURATION.finditer(text):
        if match.start() != position:
            break
        total += float(match[1]) * _UNITS_S[match[2]]
        position = match.end()
    if text == "0":
        return 0.0
    if position != len(text) or not text:
        raise BadConfiguration(f"{where}: invalid value {text!r}: expected a duration such as 10s or 1m30s")
    return total


# --- arguments, plugin by plugin ---


class _Resource(Wire, frozen=True, kw_only=True):
    name: str
    weight: int = 1


class _ShapePoint(Wire, frozen=True, kw_only=True):
    utilization: int
    score: int


class _Ratio(Wire, frozen=True, kw_only=True):
    shape: tuple[_ShapePoint, ...] = ()


class _ScoringStrategy(Wire, frozen=True, kw_only=True):
    type: Strategy = Strategy.LEAST_ALLOCATED
    resources: tuple[_Resource, ...] = (_Resource(name="cpu"), _Resource(name="memory"))
    requested_to_capacity_ratio: _Ratio = _Ratio()


class _FitArgs(Wire, frozen=True, kw_only=True):
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: _ScoringStrategy = _ScoringStrategy()
    placement_scoring_strategy: Any = None


class _BalancedArgs(Wire, frozen=True, kw_only=True):
    resources: tuple[_Resource, ...] = (_Resource(name="cpu"), _Resource(name="memory"))


class _AffinityArgs(Wire, frozen=True, kw_only=True):
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class _AddedAffinity(Wire, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: dict[str, Any] | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[dict[str, Any], ...] = ()


class _NodeAffinityArgs(Wire, frozen=True, kw_only=True):
    added_affinity: _AddedAffinity | None = None


class _Constraint(Wire, frozen=True, kw_only=True):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    min_domains: int | None = None


class _SpreadArgs(Wire, frozen=True, kw_only=True):
    defaulting_type: str = "System"
    default_constraints: tuple[_Constraint, ...] = ()


class _DynamicResourcesArgs(Wire, frozen=True, kw_only=True):
    filter_timeout: str = "10s"
    binding_timeout: str = "600s"


def _fit(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    args = typed(given, _FitArgs, where)
    strategy = args.scoring_strategy
    for resource in strategy.resources:
        if not 1 <= resource.weight <= 100:
            raise BadConfiguration(
                f"{where}: scoringStrategy.resources: invalid weight {resource.weight} of {resource.name}: "
                "expected a number from 1 to 100"
            )
    shape = strategy.requested_to_capacity_ratio.shape
    if strategy.type is Strategy.REQUESTED_TO_CAPACITY_RATIO and not shape:
        raise BadConfiguration(f"{where}: scoringStrategy.requestedToCapacityRatio.shape: expected at least one point")
    return {
        "ignored_resources": frozenset(args.ignored_resources),
        "ignored_resource_groups": frozenset(args.ignored_resource_groups),
        "strategy": strategy.type,
        "strategy_resources": tuple(ResourceWeight(each.name, each.weight) for each in strategy.resources),
        "strategy_shape": tuple(ShapePoint(point.utilization, point.score) for point in shape),
    }


def _balanced(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    args = typed(given, _BalancedArgs, where)
    return {"balanced_resources": tuple(ResourceWeight(each.name, each.weight) for each in args.resources)}


def _affinity(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    args = typed(given, _AffinityArgs, where)
    if not 0 <= args.hard_pod_affinity_weight <= 100:
        raise BadConfiguration(
            f"{where}: hardPodAffinityWeight: invalid value {args.hard_pod_affinity_weight}: expected 0 to 100"
        )
    return {
        "hard_pod_affinity_weight": args.hard_pod_affinity_weight,
        "ignore_preferred_terms_of_existing_pods": args.ignore_preferred_terms_of_existing_pods,
    }


def _nodes(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    args = typed(given, _NodeAffinityArgs, where)
    if args.added_affinity is None:
        return {}
    field, said = f"{where}: addedAffinity", given["addedAffinity"]
    for found in check_affinity({"nodeAffinity": said}, field):
        problem = found.error
        raise BadConfiguration(f"{problem.field.replace('.nodeAffinity', '', 1)}: {problem.message}")
    affinity = typed(said, NodeAffinity, field)
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is None and not affinity.preferred_during_scheduling_ignored_during_execution:
        raise BadConfiguration(f"{field}: expected terms that are required or preferred")
    matcher = None if required is None else node_matcher(required)
    return {"added_affinity": AddedAffinity(required=matcher, preferred=preferences(affinity))}


def _spread(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    args = typed(given, _SpreadArgs, where)
    if args.defaulting_type == "System":
        if args.default_constraints:
            raise BadConfiguration(f"{where}: defaultConstraints: expected none with defaultingType System")
        return {}
    if args.defaulting_type != "List":
        raise BadConfiguration(
            f"{where}: defaultingType: invalid value {args.defaulting_type!r}: expected System or List"
        )
    spreads: dict[bool, list[Spread]] = {True: [], False: []}
    for constraint in args.default_constraints:
        if constraint.max_skew < 1:
            raise BadConfiguration(f"{where}: maxSkew: invalid value {constraint.max_skew}: expected at least 1")
        made = Spread(constraint.topology_key, constraint.max_skew, None, constraint.min_domains or 1)
        spreads[constraint.when_unsatisfiable == SCHEDULE_ANYWAY].append(made)
    return {
        "default_spreads": tuple(spreads[True]),
        "default_hard_spreads": tuple(spreads[False]),
        "system_default_spreads": False,
    }


def _devices(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    args = typed(given, _DynamicResourcesArgs, where)
    duration_s(args.filter_timeout, f"{where}: filterTimeout")
    timeout = duration_s(args.binding_timeout, f"{where}: bindingTimeout")
    if timeout < 1:
        raise BadConfiguration(f"{where}: bindingTimeout: invalid value {args.binding_timeout!r}: expected at least 1s")
    return {"binding_timeout_s": timeout}


READERS: Mapping[str, Callable[[Mapping[str, Any], str], dict[str, Any]]] = {
    "NodeResourcesFit": _fit,
    "NodeResourcesBalancedAllocation": _balanced,
    "InterPodAffinity": _affinity,
    "NodeAffinity": _nodes,
    "PodTopologySpread": _spread,
    "DynamicResources": _devices,
}
