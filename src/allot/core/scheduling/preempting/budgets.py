"""Disruption budgets: which pods they protect, and how many of these may be evicted now."""

from __future__ import annotations

from collections.abc import Iterable

from allot.core.model import core_v1, policy_v1
from allot.core.scheduling.preempting.victims import Budget
from allot.core.selectors import Requirements, SelectorError, label_requirements


class Budgets:
    """Budgets, ready to be checked for pods. As upstream, one without a selector, or with an empty one, protects none."""

    def __init__(self, budgets: Iterable[policy_v1.PodDisruptionBudget]) -> None:
        self._by_namespace: dict[str, list[tuple[Budget, Requirements, frozenset[str]]]] = {}
        self._allowed: dict[Budget, int] = {}
        for budget in budgets:
            selector = budget.spec.selector
            if selector is None or not (selector.match_labels or selector.match_expressions):
                continue
            try:
                requirements = label_requirements(selector)
            except SelectorError:
                continue
            assert requirements is not None, "there is a selector"
            key = (budget.metadata.namespace, budget.metadata.name)
            going = frozenset(budget.status.disrupted_pods)
            self._by_namespace.setdefault(key[0], []).append((key, requirements, going))
            self._allowed[key] = budget.status.disruptions_allowed

    def allowed(self) -> dict[Budget, int]:
        """How many pods of each budget may be evicted; a copy for the caller."""
        return dict(self._allowed)

    def protecting(self, pod: core_v1.Pod) -> tuple[Budget, ...]:
        """The budgets that evicting a pod now would count against."""
        metadata = pod.metadata
        return tuple(
            key
            for key, requirements, going in self._by_namespace.get(metadata.namespace, ())
            if metadata.name not in going and requirements.matches(metadata.labels)
        )
