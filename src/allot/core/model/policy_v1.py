"""policy/v1: budgets for disruptions."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.model.meta import (
    EMPTY,
    Condition,
    Int32,
    Int64,
    IntOrString,
    LabelSelector,
    ObjectMeta,
    PartialStruct,
    Time,
)

GROUP = "policy"


class PodDisruptionBudgetSpec(PartialStruct, frozen=True, kw_only=True):
    """Which pods are protected, and how many of them must stay or may go: numbers or percentages."""

    min_available: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(PartialStruct, frozen=True, kw_only=True):
    """How many of them may go now."""

    observed_generation: Int64 = 0
    # Pods whose eviction is under way, by name: they have been counted already.
    disrupted_pods: Mapping[str, Time] = EMPTY
    disruptions_allowed: Int32 = 0
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    expected_pods: Int32 = 0
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(PartialStruct, frozen=True, kw_only=True):
    """How many of some pods may be missing at a time."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
