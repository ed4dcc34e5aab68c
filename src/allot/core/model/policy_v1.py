"""policy/v1: disruption budgets."""

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
    """Which pods are protected, and how many must stay available or may be disrupted: numbers or percentages."""

    min_available: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(PartialStruct, frozen=True, kw_only=True):
    """How many pods may be disrupted now."""

    observed_generation: Int64 = 0
    # Pods being evicted, by name: they are already counted.
    disrupted_pods: Mapping[str, Time] = EMPTY
    disruptions_allowed: Int32 = 0
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    expected_pods: Int32 = 0
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(PartialStruct, frozen=True, kw_only=True):
    """Limits how many of a set of pods may be disrupted at a time."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
