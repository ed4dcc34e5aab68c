"""The parts of policy/v1 that scheduling reads: budgets for disruptions."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.model.meta import Int32, LabelSelector, ObjectMeta, PartialStruct, Time

GROUP = "policy"


class PodDisruptionBudgetSpec(PartialStruct, frozen=True, kw_only=True):
    """Which pods are protected."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(PartialStruct, frozen=True, kw_only=True):
    """How many of them may go now."""

    disruptions_allowed: Int32 = 0
    # Pods whose eviction is under way, by name: they have been counted already.
    disrupted_pods: Mapping[str, Time | None] = {}


class PodDisruptionBudget(PartialStruct, frozen=True, kw_only=True):
    """How many of some pods may be missing at a time."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
