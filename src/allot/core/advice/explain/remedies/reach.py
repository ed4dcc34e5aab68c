"""Nodes that are to reach network-attached devices: the labels that these are for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from allot.core.advice.explain.diagnosis import Candidate, Rank, patch_of
from allot.core.advice.explain.nodes import selects_node
from allot.core.advice.explain.remedies.nodes import is_given
from allot.core.advice.explain.wording import listed, named
from allot.core.advice.nearest import nearest
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.encoding import encode_struct
from allot.core.scheduling import NodeInfo

_NODES_MAX = 4
# Many labels have these values: then keys have to be nearly the same.
_GENERIC = ("", "true", "false", "yes", "no", "enabled")
_KEYS_LIKENESS_MIN = 0.85
_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")


class NearMiss(NamedTuple):
    """Nodes that a selector would select but for one label. asked: that label; has: what they have instead."""

    asked: tuple[str, str]
    has: tuple[str, str]
    nodes: tuple[NodeInfo, ...]

    @property
    def text(self) -> str:
        """`nodes a and b have rack-id=r7 instead`."""
        has = "has" if len(self.nodes) == 1 else "have"
        return f"{self.named} {has} {'='.join(self.has)} instead"

    @property
    def named(self) -> str:
        """`nodes a and b`."""
        return named("node", [info.name for info in self.nodes])


def near_miss(what_if: WhatIfCluster, selector: core_v1.NodeSelector) -> NearMiss | None:
    """What looks as if it were the label that a selector asks for: its key is a similar one, or its value is spelled differently."""
    found: dict[tuple[tuple[str, str], tuple[str, str]], list[NodeInfo]] = {}
    for term in selector.node_selector_terms:
        for info in what_if.cluster.nodes.values():
            unmet = [each for each in term.match_expressions if not _meets(info, each)]
            if len(unmet) != 1 or unmet[0].operator != "In" or term.match_fields or is_given(unmet[0].key):
                continue
            pair = _instead(unmet[0], info.labels)
            if pair is not None:
                found.setdefault(pair, []).append(info)
    best = max(found, key=lambda pair: len(found[pair]), default=None)
    return NearMiss(*best, tuple(found[best])) if best is not None else None


def _meets(info: NodeInfo, each: core_v1.NodeSelectorRequirement) -> bool:
    term = core_v1.NodeSelectorTerm(match_expressions=(each,))
    return selects_node(core_v1.NodeSelector(node_selector_terms=(term,)), info)


def _instead(
    asked: core_v1.NodeSelectorRequirement, labels: Mapping[str, str]
) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """The label that is asked for, and the one that is there; None if none is like it."""
    there = labels.get(asked.key)
    for value in asked.values:
        if there is not None and _plain(there) == _plain(value):
            return (asked.key, value), (asked.key, there)
        # A label with another value describes the node.
        key = _near_key(asked.key, value, labels) if there is None else None
        if key is not None:
            return (asked.key, value), (key, value)
    return None


def _plain(value: str) -> str:
    """A value without what is often spelled differently: `R-07` becomes `r7`."""
    return _LEADING_ZEROS.sub("", re.sub(r"[^a-z0-9]", "", value.lower()))


def _near_key(asked: str, value: str, labels: Mapping[str, str]) -> str | None:
    """A similar key with the same value, in the same domain or another one."""
    likeness = {"likeness_min": _KEYS_LIKENESS_MIN} if value.lower() in _GENERIC else {}
    same = [key for key, there in labels.items() if there == value]
    short = {key.rpartition("/")[2]: key for key in same}
    found = nearest(asked.rpartition("/")[2], short, **likeness)
    return short[found] if found is not None else nearest(asked, same, **likeness)


def connected(
    what_if: WhatIfCluster,
    near: Sequence[str],
    selector: core_v1.NodeSelector,
    slices: Sequence[api.ResourceSlice],
) -> Iterator[Candidate]:
    """Nodes with the labels that the devices of a pool are for. near: the names of those that come closest; slices: of the pool."""
    missed = near_miss(what_if, selector)
    if missed is not None:
        yield from _renamed(missed, slices)
        return
    for term in selector.node_selector_terms:
        labels = {each.key: each.values[0] for each in term.match_expressions if each.operator == "In" and each.values}
        if len(labels) < len(term.match_expressions) or term.match_fields or any(map(is_given, labels)):
            continue
        for name in list(dict.fromkeys([*near, *what_if.cluster.nodes]))[:_NODES_MAX]:
            there = what_if.cluster.nodes[name].labels
            operation = {"op": "add", "path": "/metadata/labels", "value": {**there, **labels}}
            shown = listed(f"{key}={value}" for key, value in labels.items())
            text = f"label the nodes that are connected to pool {slices[0].spec.pool.name} with {shown}"
            yield Candidate(rank=Rank.ADMIN, text=text, patches=(patch_of("Node", name, operation),))


def _renamed(missed: NearMiss, slices: Sequence[api.ResourceSlice]) -> Iterator[Candidate]:
    """The nodes get the label that is asked for, or the driver asks for the one that they have."""
    key, value = missed.asked
    yield Candidate(
        rank=Rank.FIX,
        text=f"label {missed.named} with {key}={value}",
        patches=tuple(
            patch_of("Node", info.name, {"op": "add", "path": "/metadata/labels", "value": {**info.labels, key: value}})
            for info in missed.nodes
        ),
    )
    whole = [each for each in slices if each.spec.node_selector is not None]
    if whole:
        pool, driver = whole[0].spec.pool.name, whole[0].spec.driver
        asked, has = (f"{pair[0]}={pair[1]}" for pair in (missed.asked, missed.has))
        yield Candidate(
            rank=Rank.ADMIN,
            text=f"make driver {driver} publish pool {pool} for nodes with {has} instead of {asked}",
            patches=tuple(_for_others(each, missed) for each in whole),
        )


def _for_others(slice_: api.ResourceSlice, missed: NearMiss) -> Patch:
    """A slice for nodes with the label that some have."""
    selector = slice_.spec.node_selector
    assert selector is not None, "only slices with a selector are changed"
    key, value = missed.has
    terms = [
        replace(
            term,
            match_expressions=tuple(
                replace(each, key=key, values=(value,)) if each.key == missed.asked[0] else each
                for each in term.match_expressions
            ),
        )
        for term in selector.node_selector_terms
    ]
    changed = encode_struct(replace(selector, node_selector_terms=tuple(terms)))
    operation = {"op": "replace", "path": "/spec/nodeSelector", "value": changed}
    return patch_of("ResourceSlice", slice_.metadata.name, operation)
