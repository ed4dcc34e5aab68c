"""Whether pods are where they should be up to the names of nodes and domains: there is a way to rename nodes, and the values of labels that
stand for domains, that changes nothing else and makes expected places actual ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Pairs = Sequence[tuple[Sequence[str], Sequence[str]]]
_STEPS_MAX = 100_000


def is_symmetric(case: Mapping[str, Any], alike: Pairs) -> bool:
    """alike: for each kind of pods the nodes where they should be and are, in any order."""
    return _Renaming(case, alike).exists()


class _Renaming:
    def __init__(self, case: Mapping[str, Any], alike: Pairs) -> None:
        self._nodes: Mapping[str, Mapping[str, Any]] = case["nodes"]
        self._levels = sorted({level for each in case.get("topologies", ()) for level in each["levels"]})
        expected = [Counter(names) for names, _ in alike]
        actual = [Counter(names) for _, names in alike]
        # What has to be equal for a node and the one that it stands for.
        self._should = {name: [count[name] for count in expected] for name in self._nodes}
        self._is = {name: [count[name] for count in actual] for name in self._nodes}
        # Those that are named first, so that a wrong guess shows early.
        self._order = sorted(self._nodes, key=lambda name: (not any(self._should[name]), name))
        self._values: dict[tuple[str, str], str] = {}
        self._taken: set[tuple[str, str]] = set()
        self._steps = 0

    def exists(self) -> bool:
        return self._rename(0, set())

    def _rename(self, at: int, used: set[str]) -> bool:
        if at == len(self._order):
            return True
        name = self._order[at]
        for other in sorted(self._nodes, key=lambda other: (other != name, other)):
            self._steps += 1
            assert self._steps < _STEPS_MAX, "the nodes of the case are too much alike"
            if other in used or self._should[name] != self._is[other]:
                continue
            bound = self._bind(name, other)
            if bound is None:
                continue
            if self._rename(at + 1, used | {other}):
                return True
            for key in bound:
                self._taken.discard((key[0], self._values.pop(key)))
        return False

    def _bind(self, name: str, other: str) -> list[tuple[str, str]] | None:
        """The values of labels that are renamed now if one node stands for the other; None if it cannot."""
        mine, theirs = dict(self._nodes[name]), dict(self._nodes[other])
        labels, others = dict(mine.pop("labels", {})), dict(theirs.pop("labels", {}))
        if mine != theirs:
            return None
        bound: list[tuple[str, str]] = []
        for level in self._levels:
            value, new = labels.pop(level, None), others.pop(level, None)
            if value is None and new is None:
                continue
            known = self._values.get((level, str(value)))
            is_new = known is None and (level, str(new)) not in self._taken
            if value is None or new is None or not (known == new or is_new):
                break
            if is_new:
                self._values[level, value] = new
                self._taken.add((level, new))
                bound.append((level, value))
        else:
            if labels == others:
                return bound
        for key in bound:
            self._taken.discard((key[0], self._values.pop(key)))
        return None
