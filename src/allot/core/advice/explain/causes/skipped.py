"""Nodes that the pod selects and that publish no devices because the driver does not run there: the cause is the driver, not the pod's
selector."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from allot.core.advice.explain.causes import driver_pods
from allot.core.advice.explain.causes.placing import Placing, has_enough
from allot.core.advice.explain.causes.silent import silent
from allot.core.advice.explain.causes.vendors import drivers_by_node, is_of_others
from allot.core.advice.explain.devices import Wanted, expected_drivers
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank
from allot.core.advice.explain.remedies import nodes
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import named
from allot.core.model import resource_v1 as api


def without_driver(placing: Placing, found: Diagnosis) -> Diagnosis:
    """What is wrong with the driver on the nodes that the pod selects; otherwise what was found. The remedies that were found come
    later: the pod selects its nodes for a reason."""
    selected = _selected(placing)
    for wanted in placing.wanted if selected else ():
        there = wanted.found.nodes
        bare = [name for name in selected if name not in there or not there[name].in_class]
        if len(bare) < len(selected):
            continue
        failing = _failing(placing, wanted, bare)
        if failing:
            return _caused(placing, wanted, selected, failing, found)
    return found


def _selected(placing: Placing) -> list[str]:
    """The ready nodes that the pod's selector and affinity allow; none if these exclude no node."""
    reasons = {check.reason for checks in placing.checks.values() for check in checks}
    if Reason.AFFINITY not in reasons:
        return []
    return [
        name
        for name, checks in placing.checks.items()
        if not any(check.reason in (Reason.AFFINITY, Reason.NODE_NOT_READY) for check in checks)
    ]


def _failing(placing: Placing, wanted: Wanted, names: Sequence[str]) -> list[driver_pods.FailingPod]:
    """Of nodes without devices, those that should have some, and why the driver's pod does not run there."""
    what_if = placing.what_if
    slices = what_if.all(api.ResourceSlice)
    having = {name for name, there in wanted.found.nodes.items() if there.in_class}
    drivers = expected_drivers(what_if.get(api.DeviceClass, wanted.class_name)) or sorted(
        {each.spec.driver for each in slices if each.spec.node_name in having}
    )
    published = drivers_by_node(what_if)
    failing = []
    for driver in dict.fromkeys(drivers):
        crashed = {each.node: each for each in silent(what_if, driver)}
        crashed |= {each.node: each for each in reversed(driver_pods.failing(what_if, driver))}
        for name in names:
            node, there = what_if.cluster.nodes[name].node, published.get(name, ())
            if driver in there or is_of_others(driver, node, there):
                continue
            skips = driver_pods.unselected(what_if, driver, name) if driver_pods.has_device_words(node) else None
            found = crashed.get(name, skips)
            failing += [found] if found is not None else []
    return failing


def _caused(
    placing: Placing,
    wanted: Wanted,
    selected: Sequence[str],
    failing: Sequence[driver_pods.FailingPod],
    found: Diagnosis,
) -> Diagnosis:
    names, first = [each.node for each in failing], failing[0]
    alone, all_ = len(names) == 1, len(names) == len(selected)
    which = (
        ("the only one that matches" if alone else "the only ones that match") if all_ else "which the pod selects by"
    )
    text = (
        f"{named('node', names)}, {which} {nodes.own_terms(placing.pod)}, {'publishes' if alone else 'publish'} no devices of class "
        f"{wanted.class_name}: {driver_pods.of_all(failing)}"
    )
    others = [name for name in wanted.found.nodes if all(has_enough(each, name) for each in placing.wanted)]
    if others:
        verb = ("has", "does") if len(others) == 1 else ("have", "do")
        text += f"; {named('node', others)} {verb[0]} enough free ones, but {verb[1]} not match"
    having = {name: there.in_class for name, there in wanted.found.nodes.items() if there.in_class}
    like = placing.what_if.cluster.nodes.get(max(having, key=lambda name: having[name], default=""))
    patches = tuple(nodes.slices_like(placing.what_if, like, first.node)) if like is not None else ()
    later = [replace(each, rank=max(each.rank, Rank.DROP + 1)) for each in found.candidates]
    return Diagnosis(
        reason=Reason.NO_DRIVER,
        text=text,
        candidates=(*([Candidate(rank=Rank.FIX, text=first.advice, patches=patches)] if patches else []), *later),
        advice=tuple(dict.fromkeys([*(each.advice for each in failing), *found.advice])),
    )
