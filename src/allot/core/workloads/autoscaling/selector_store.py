"""The selectors of all autoscalers, to detect two autoscalers with the same pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from allot.core.model.core_v1 import Pod
from allot.core.selectors import Operator, Requirements


class SelectorStore:
    """Selectors by namespace and autoscaler, indexed by a label that they name, if any."""

    def __init__(self) -> None:
        self._selectors: dict[tuple[str, str], Requirements] = {}
        self._by_label: dict[tuple[str, str, str], dict[str, None]] = {}
        self._others: dict[str, dict[str, None]] = {}

    def put(self, namespace: str, name: str, selector: Requirements) -> None:
        """Set the selector of an autoscaler's target."""
        if self._selectors.get((namespace, name)) == selector:
            return
        self.delete(namespace, name)
        self._selectors[namespace, name] = selector
        self._place(namespace, selector)[name] = None

    def delete(self, namespace: str, name: str) -> None:
        """Forget a deleted autoscaler."""
        selector = self._selectors.pop((namespace, name), None)
        if selector is not None:
            self._place(namespace, selector).pop(name, None)

    def rivals(self, namespace: str, pods: Iterable[Pod], most: int) -> list[str]:
        """The keys of autoscalers that select some of these pods, up to a limit."""
        found: dict[str, None] = {}
        for pod in pods:
            labels = pod.metadata.labels
            for name in self._candidates(namespace, labels):
                if name not in found and self._selectors[namespace, name].matches(labels):
                    found[name] = None
                    if len(found) == most:
                        return [f"{namespace}/{each}" for each in sorted(found)]
        return [f"{namespace}/{each}" for each in sorted(found)]

    def _candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterable[str]:
        for key, value in labels.items():
            yield from self._by_label.get((namespace, key, value), ())
        yield from self._others.get(namespace, ())

    def _place(self, namespace: str, selector: Requirements) -> dict[str, None]:
        for one in selector.all:
            if one.operator is Operator.IN and len(one.values) == 1:
                key = (namespace, one.key, next(iter(one.values)))
                return self._by_label.setdefault(key, {})
        return self._others.setdefault(namespace, {})
