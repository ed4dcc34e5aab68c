"""Pods by their labels, as a snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from allot.core.selectors import Operator, Requirements

Labels = Mapping[str, str]


class PodIndex:
    """Names, labels and nodes of pods. A selector with a label value finds its pods without a full scan."""

    def __init__(self, pods: Iterable[tuple[str, str, Labels, str]] = ()) -> None:
        """pods: namespace, name, labels, and the node."""
        self._pods: dict[str, dict[str, Labels]] = {}
        self._nodes: dict[tuple[str, str], str] = {}
        self._on_node: dict[str, list[tuple[str, str]]] = {}
        self._by_label: dict[tuple[str, str, str], list[str]] = {}
        for namespace, name, labels, node in pods:
            self._pods.setdefault(namespace, {})[name] = labels
            if node:
                self._nodes[namespace, name] = node
                self._on_node.setdefault(node, []).append((namespace, name))
            for key, value in labels.items():
                self._by_label.setdefault((namespace, key, value), []).append(name)

    def node(self, namespace: str, name: str) -> str:
        """The node of a pod; empty if it has none."""
        return self._nodes.get((namespace, name), "")

    def on_node(self, node: str) -> Sequence[tuple[str, str]]:
        """Namespaces and names of a node's pods."""
        return self._on_node.get(node, ())

    def namespaces(self) -> tuple[str, ...]:
        """The namespaces with pods."""
        return tuple(sorted(self._pods))

    def labels(self, namespace: str, name: str) -> Labels | None:
        """The labels of a pod; None if there is no such pod."""
        return self._pods.get(namespace, {}).get(name)

    def selected(self, namespace: str, wanted: Requirements) -> Iterator[tuple[str, Labels]]:
        """Names and labels of the selected pods."""
        pods = self._pods.get(namespace, {})
        names: Collection[str] = pods
        for one in wanted.all:
            if one.operator is Operator.IN and len(one.values) == 1:
                found = self._by_label.get((namespace, one.key, next(iter(one.values))), [])
                names = found if len(found) < len(names) else names
        for name in sorted(names):
            if wanted.matches(pods[name]):
                yield name, pods[name]
